//! Clients whose calls succeed across upgrades.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use probeshim::cri::runtime_client;
use probeshim::cri::v1::ExecSyncRequest;
use probeshim::cri::v1::runtime_service_client::RuntimeServiceClient;
use probeshim::socket::SocketPath;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tonic::transport::Channel;

/// Maximum number of unanswered calls of a client with a constant rate. A slow machine is not
/// flooded.
const MAX_IN_FLIGHT: usize = 20;

/// Makes a call until it was sent, and asserts that it succeeds.
pub(super) async fn succeeds(client: &mut RuntimeServiceClient<Channel>, container: &str) {
    let request =
        ExecSyncRequest { container_id: container.to_owned(), cmd: vec!["true".to_owned()], timeout: 0 };
    loop {
        match client.exec_sync(request.clone()).await {
            Ok(_) => return,
            Err(status) if was_not_sent(&status) => {}
            Err(status) => panic!("a call failed: {status}"),
        }
    }
}

/// Starts a hundred calls per second until `done`, and asserts that all succeed. Fewer are started
/// while [`MAX_IN_FLIGHT`] are not answered. Returns their number.
pub(super) async fn call_at_rate(socket: SocketPath, container: String, done: Arc<AtomicBool>) -> usize {
    let (client, mut calls, mut answered) = (runtime_client(&socket), JoinSet::new(), 0);
    let mut ticks = interval(Duration::from_millis(10));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !done.load(Ordering::Relaxed) {
        ticks.tick().await;
        while calls.len() >= MAX_IN_FLIGHT {
            calls.join_next().await.unwrap().unwrap();
            answered += 1;
        }
        let (mut client, container) = (client.clone(), container.clone());
        calls.spawn(async move { succeeds(&mut client, &container).await });
    }
    answered + calls.join_all().await.len()
}

/// Returns whether the client's library gave a call up before it sent a byte of it: the connection
/// was closed in order while the call waited for it. grpc-go, which kubelets use, sends such a call
/// on its next connection by itself.
fn was_not_sent(status: &tonic::Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        source = error.source();
    }
    false
}
