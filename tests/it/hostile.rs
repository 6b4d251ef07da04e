//! Hostile clients, runtimes, requests, names and files: each gets the documented answer, other
//! clients are served, and private data stays private.

mod disk;
mod displays;
mod files;
mod floods;
mod malformed;
mod manifests;
mod names;
mod privacy;
mod requests;
mod runtimes;
mod secrets;
mod slots;
mod sockets;
mod states;
mod targets;

use std::fs;
use std::time::Duration;

use fixtures::http2::client::Client;
use fixtures::http2::runtime::Runtime;
use fixtures::http2::{answered, read_all};
use fixtures::wait::soon;

use crate::admin::get;
use crate::procrun::until;
use crate::program::{Place, Running};

/// A probeshim in front of a runtime that answers every call, with a well-behaved client.
struct Besieged {
    shim: Running,
    bystander: Client,
    /// Open descriptors of probeshim while only the bystander is connected.
    descriptors: usize,
    _place: Place,
}

impl Besieged {
    async fn start() -> Self {
        let place = Place::new();
        let (shim, runtime) = place.start_with_runtime(&[]).await;
        tokio::spawn(answer_every_call(runtime));
        let stream = tokio::net::UnixStream::connect(&shim.socket).await.unwrap();
        let mut bystander = Client::over(stream).await;
        assert_eq!(answered(bystander.ask("/a.B/C")).await, "served");
        let descriptors = descriptors_at_rest(&place, &shim).await;
        Self { shim, bystander, descriptors, _place: place }
    }

    /// Asserts that the well-behaved client is served.
    async fn serves_bystander(&mut self) {
        assert_eq!(answered(self.bystander.ask("/a.B/C")).await, "served");
    }

    /// Asserts that probeshim has closed the descriptors of all other clients, and that none of its
    /// threads panicked.
    async fn assert_unharmed(mut self) {
        self.serves_bystander().await;
        descriptors_return_to(&self.shim, self.descriptors).await;
        assert_no_panic(&self.shim).await;
    }
}

/// Answers each call on each connection until the test ends.
async fn answer_every_call(runtime: Runtime) {
    loop {
        let stream = runtime.accept_late_raw().await;
        tokio::spawn(async move {
            // A hostile client may disconnect before the HTTP/2 handshake, or reset its call.
            let Ok(mut connection) = Runtime::handshake(stream).await else { return };
            while let Some(mut call) = connection.next_call().await {
                // A request without an end gets no answer.
                tokio::spawn(async move {
                    if read_all(call.request.body_mut()).await.is_ok() {
                        let _ = call.try_answer("served");
                    }
                });
            }
        });
    }
}

/// Returns the number of open descriptors of probeshim.
fn open_descriptors(shim: &Running) -> usize {
    fs::read_dir(format!("/proc/{}/fd", shim.process.id())).unwrap().count()
}

/// Returns the number of open descriptors of probeshim once it has written a call record. The
/// journal's thread opens those files.
async fn descriptors_at_rest(place: &Place, shim: &Running) -> usize {
    let is_written = || {
        let files = fs::read_dir(place.at("state/calls")).into_iter().flatten().flatten();
        let mut records = files.filter(|file| file.path().extension().is_some_and(|it| it == "jsonl"));
        records.any(|file| file.metadata().is_ok_and(|file| file.len() > 0))
    };
    until(|| async { is_written().then_some(()) }).await;
    open_descriptors(shim)
}

/// Waits until probeshim has at most `before` open descriptors.
async fn descriptors_return_to(shim: &Running, before: usize) {
    let returned = async {
        while open_descriptors(shim) > before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(returned).await;
}

/// Returns the address at which a probeshim, `run` or `play`, serves metrics and health.
async fn http_of(shim: &Running) -> String {
    let told = async {
        loop {
            let address =
                |line: &serde_json::Value| Some(line["http"].as_str()?.strip_prefix("http://")?.to_owned());
            if let Some(address) = shim.lines().iter().find_map(address) {
                return address;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(told).await
}

/// Asserts that no panic was caught and counted, and that none is on stderr.
async fn assert_no_panic(shim: &Running) {
    let metrics = get(&http_of(shim).await, "/metrics").await;
    for metric in ["probeshim_panics_total", "probeshim_prober_panics_total"] {
        assert!(metrics.lines().any(|line| line == format!("{metric} 0")), "{metric}: {metrics}");
    }
    let log = fs::read_to_string(&shim.log).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}
