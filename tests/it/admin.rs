//! What a running probeshim tells of itself, to its own commands and to strangers.

mod calls;
mod public;
mod socket;

use probeshim::cri::v1;
use prost::Message as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use crate::program::{Place, Running};
use crate::support::client::Client;
use crate::support::runtime::{Call, Runtime};
use crate::support::{answered, framed, soon};

pub(super) const SERVICE: &str = "/runtime.v1.RuntimeService";

/// Serves every connection, until it is aborted: Version and ExecSync as a runtime would, the rest with an empty message.
pub(super) fn serve(runtime: Runtime) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let mut connection = runtime.accept_late().await;
            connections.spawn(async move {
                while let Some(call) = connection.next_call().await {
                    let answer = answer_to(&call);
                    call.answer(framed(false, &answer));
                }
            });
        }
    })
}

pub(super) fn answer_to(call: &Call) -> Vec<u8> {
    match call.request.uri().path().rsplit('/').next().unwrap() {
        "Version" => v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "playedd".into(),
            runtime_version: "v9.8.7".into(),
            runtime_api_version: "v1".into(),
        }
        .encode_to_vec(),
        "ExecSync" => {
            v1::ExecSyncResponse { stdout: b"out".into(), stderr: b"".into(), exit_code: 3 }.encode_to_vec()
        }
        _ => Vec::new(),
    }
}

pub(super) fn exec_request(command: &[&str]) -> Vec<u8> {
    let cmd = command.iter().map(ToString::to_string).collect();
    v1::ExecSyncRequest { container_id: "0123456789abcdef".into(), cmd, timeout: 2 }.encode_to_vec()
}

/// Makes these calls through a probeshim, one after the other.
pub(super) async fn call(shim: &Running, calls: &[(&str, Vec<u8>)]) {
    let stream = tokio::net::UnixStream::connect(&shim.socket).await.unwrap();
    let mut client = Client::over(stream).await;
    for (method, message) in calls {
        answered(client.call(method, framed(false, message))).await;
    }
}

/// A probeshim in front of a runtime that answers, after a Version, an ExecSync and a call that nobody knows.
pub(super) async fn after_three_calls(place: &Place) -> Running {
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    serve(runtime);
    let exec = exec_request(&["cat", "/tmp/it's here", "\u{1b}[31mred\u{202e}"]);
    call(
        &shim,
        &[
            (&format!("{SERVICE}/Version"), Vec::new()),
            (&format!("{SERVICE}/ExecSync"), exec),
            ("/a.B/C", b"unknown".into()),
        ],
    )
    .await;
    kept(place, 3).await;
    shim
}

/// The calls that are kept, once there are so many.
pub(super) async fn kept(place: &Place, count: usize) -> Vec<Value> {
    let kept = async {
        loop {
            let calls = place.ask(&["calls", "-o", "json"]).await.json();
            let calls = calls.as_array().unwrap().clone();
            if calls.len() >= count {
                return calls;
            }
        }
    };
    soon(kept).await
}

/// Where a probeshim serves metrics and health.
pub(super) async fn public_address(shim: &Running) -> String {
    let started = shim.logged("probeshim started").await;
    started["http"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
}

/// The whole answer to a request that is written as it goes over the wire.
pub(super) async fn exchange(address: &str, request: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    soon(exchange).await
}

pub(super) async fn get(address: &str, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")).await
}
