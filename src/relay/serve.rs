//! Accepts clients, and drains them.

use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::call::CallRegistry;
use super::connection::{self, ConnContext};
use super::overflow::{Placement, SecondThread};
use super::refusals::Refusals;
use super::{RelayConfig, RelaySummary};
use crate::socket::Acceptor;

/// Serves clients until `drain` is cancelled, then lets their calls finish.
pub(super) async fn serve(
    listener: UnixListener,
    settings: RelayConfig,
    tracker: CallRegistry,
    drain: CancellationToken,
    second: SecondThread,
) -> RelaySummary {
    let mut summary = RelaySummary::default();
    let cut = CancellationToken::new();
    let upstream = Arc::new(settings.upstream);
    let refusals = Arc::new(Refusals::default());
    let shared = ConnContext { upstream, tracker, refusals, drain: drain.clone(), cut: cut.clone() };
    let mut links = JoinSet::new();
    let mut acceptor = Acceptor::new(listener);
    let mut placement = Placement::new(second);
    loop {
        let client = tokio::select! {
            biased;
            () = drain.cancelled() => break,
            // Tasks are removed when they end. Otherwise the set would grow with every connection.
            Some(ended) = links.join_next() => {
                report(ended);
                continue;
            }
            client = acceptor.accept() => client,
        };
        summary.connections += 1;
        let (id, shared) = (summary.connections, shared.clone());
        match placement.place(client) {
            Ok((None, client)) => links.spawn(connection::run(id, client, shared)),
            Ok((Some(thread), client)) => links.spawn_on(connection::run(id, client, shared), &thread),
            Err(error) => {
                error!(connection = id, %error, "cannot serve a connection");
                continue;
            }
        };
        // The connections that are ready have their turn before the next client is accepted.
        yield_now().await;
    }
    // From here on the kernel refuses clients, as it does for a runtime that is gone.
    drop(acceptor);
    info!(connections = links.len(), timeout = ?settings.drain_timeout, "draining");
    if timeout(settings.drain_timeout, all_ended(&mut links)).await.is_err() {
        summary.aborted = links.len();
        warn!(connections = summary.aborted, "drain timeout is over, aborting the remaining connections");
        cut.cancel();
        all_ended(&mut links).await;
    }
    summary
}

async fn all_ended(links: &mut JoinSet<()>) {
    while let Some(ended) = links.join_next().await {
        report(ended);
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a connection panicked, please report it");
    }
}
