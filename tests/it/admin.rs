//! The interfaces of a running probeshim: the admin API for its commands, and the public address
//! for metrics and health.

mod calls;
mod classes;
mod commands;
mod execs;
mod metrics;
mod page;
mod public;
mod socket;
mod storm;

use fixtures::http2::client::Client;
use fixtures::http2::{answered, framed};
use fixtures::wait::soon;
use probeshim::cri::v1;
use prost::Message as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::procrun::Runtime;
use crate::program::{Place, Running};

pub(super) const SERVICE: &str = "/runtime.v1.RuntimeService";

/// Makes these calls through probeshim, one after the other.
pub(super) async fn call(shim: &Running, calls: &[(&str, Vec<u8>)]) {
    let stream = tokio::net::UnixStream::connect(&shim.socket).await.unwrap();
    let mut client = Client::over(stream).await;
    for (method, message) in calls {
        answered(client.call(method, framed(false, message))).await;
    }
}

/// A probeshim in front of procrun, with the id of a container.
pub(super) struct Watched {
    pub(super) shim: Running,
    pub(super) runtime: Runtime,
    pub(super) container: String,
}

/// Arguments of the executed command, which need quoting and escaping in tables.
pub(super) const COMMAND: [&str; 5] =
    ["sh", "-c", "printf out; exit 3", "/tmp/it's here", "\u{1b}[31mred\u{202e}"];

/// Starts probeshim and makes three calls through it: a Version, an ExecSync and a call of an
/// unknown method.
pub(super) async fn after_three_calls(place: &Place) -> Watched {
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start(&[]).await;
    let cmd = COMMAND.map(str::to_owned).into();
    let exec = v1::ExecSyncRequest { container_id: container.clone(), cmd, timeout: 2 }.encode_to_vec();
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
    Watched { shim, runtime, container }
}

/// Returns the recorded calls, also of earlier runs, once there are at least `count`.
pub(super) async fn kept(place: &Place, count: usize) -> Vec<Value> {
    let kept = async {
        loop {
            let calls = place.ask(&["calls", "--all", "-o", "json"]).await.json();
            let calls = calls.as_array().unwrap().clone();
            if calls.len() >= count {
                return calls;
            }
        }
    };
    soon(kept).await
}

/// Repeats a command with JSON output until `so` returns a value.
pub(super) async fn until_shown<T>(
    place: &Place,
    arguments: &[&str],
    mut so: impl FnMut(&Value) -> Option<T>,
) -> T {
    let shown = async {
        loop {
            let answer = place.ask(&[arguments, &["-o", "json"]].concat()).await.json();
            if let Some(so) = so(&answer) {
                return so;
            }
        }
    };
    soon(shown).await
}

/// Returns the address of metrics and health.
pub(super) async fn public_address(shim: &Running) -> String {
    let started = shim.logged("probeshim started").await;
    started["http"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
}

/// Sends a request as raw text and returns the whole answer.
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
