//! Memory used for clients returns to the system after they disconnect.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use fixtures::http2::client::Client;
use fixtures::http2::{answered, framed, request};
use fixtures::wait::soon;
use tokio::net::UnixStream;

use crate::program::{Place, Running};

const VERSION: &str = "/runtime.v1.RuntimeService/Version";

/// Number of connections, and number of streams that each holds open.
const CONNECTIONS: usize = 20;
const STREAMS: usize = 1000;

/// Minimum growth of memory by these streams, and maximum part that may remain, in KiB.
const MIN_GROWTH_KIB: u64 = 40 << 10;
const MAX_EXCESS_KIB: u64 = 20 << 10;

#[tokio::test]
async fn memory_of_streams_goes_back_to_the_system_when_their_clients_disconnect() {
    let place = Place::new();
    let procrun = start_procrun(&place).await;
    let shim = place.start(&[]).await;
    let mut stays = connect(&shim).await;
    assert!(!answered(stays.call(VERSION, framed(false, b""))).await.is_empty());
    let processes = [&shim, &procrun];
    let before = processes.map(resident_kib);

    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let client = connect(&shim).await;
        for _ in 0..STREAMS {
            let mut calls = soon(client.calls.clone().ready()).await.unwrap();
            streams.push(calls.send_request(request(VERSION), false).unwrap());
        }
        clients.push(client);
    }
    let excess = || [0, 1].map(|process| resident_kib(processes[process]).saturating_sub(before[process]));
    until(|| excess().iter().all(|excess| *excess > MIN_GROWTH_KIB)).await;
    // These allocations stay and keep the end of the heap in use. Otherwise glibc would return the
    // memory by itself.
    assert!(!answered(stays.call(VERSION, framed(false, b""))).await.is_empty());
    let _stays_too = connect(&shim).await;
    drop((streams, clients));
    until(|| excess().iter().all(|excess| *excess < MAX_EXCESS_KIB)).await;
}

async fn start_procrun(place: &Place) -> Running {
    let (socket, log) = (place.at("runtime.sock"), place.at("procrun.log"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("runtime").arg("--listen").arg(&socket).arg("--root").arg(place.at("root"));
    command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let procrun = Running { process: command.spawn().unwrap(), socket, log };
    procrun.logged("procrun started").await;
    procrun
}

async fn connect(shim: &Running) -> Client {
    Client::over(UnixStream::connect(&shim.socket).await.unwrap()).await
}

/// Returns the resident memory of a process in KiB.
fn resident_kib(running: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", running.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn until(condition: impl Fn() -> bool) {
    let fulfilled = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(fulfilled).await;
}
