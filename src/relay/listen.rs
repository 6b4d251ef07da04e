//! Accepting clients, and draining them.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener as AsyncListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::link::{self, Link};
use super::{Settings, Summary};

/// How long to wait after accept failed, so that a lack of descriptors is not made worse by a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves clients until `drain` is cancelled, then lets them finish.
pub(super) async fn serve(listener: UnixListener, settings: Settings, drain: CancellationToken) -> Summary {
    let mut summary = Summary::default();
    let listener = match AsyncListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            error!(%error, "cannot listen");
            return summary;
        }
    };
    let upstream = Arc::new(settings.upstream);
    let mut links = JoinSet::new();
    loop {
        let client = tokio::select! {
            biased;
            () = drain.cancelled() => break,
            // Links that ended are taken out as they end, or the set would grow with every connection.
            Some(_) = links.join_next() => continue,
            client = accept(&listener) => client,
        };
        summary.connections += 1;
        let link = Link { id: summary.connections, upstream: Arc::clone(&upstream), drain: drain.clone() };
        links.spawn(link::run(link, client));
    }
    // From here on clients are refused by the kernel, as by a runtime that has gone.
    drop(listener);
    info!(connections = links.len(), timeout = ?settings.drain_timeout, "draining");
    if timeout(settings.drain_timeout, async { while links.join_next().await.is_some() {} }).await.is_err() {
        summary.cut = links.len();
        warn!(connections = summary.cut, "drain timeout is over: cutting what is left");
    }
    summary
}

async fn accept(listener: &AsyncListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(error) => {
                error!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
