//! One client connection tied to one upstream connection, from accept to the end of both.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::io::join;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::authority_fix::AuthorityRewriter;
use super::backlog::{Backlog, TrackedWriter};
use super::call::{CallRegistry, ClientConnection};
use super::h2_settings;
use super::inlet::Inlet;
use super::outcome::DisconnectReason;
use super::peer::Peer;
use super::refusals::Refusals;
use super::session::ProxySession;
use super::turn::Turns;
use super::upstream::Upstream;
use crate::socket::SocketPath;

/// What links have in common.
#[derive(Clone, Debug)]
pub(super) struct ConnContext {
    /// Where calls go.
    pub(super) upstream: Arc<SocketPath>,
    /// Who is told of connections and calls.
    pub(super) tracker: CallRegistry,
    /// Clients that could not be served.
    pub(super) refusals: Arc<Refusals>,
    /// Cancelled when the relay drains.
    pub(super) drain: CancellationToken,
    /// Cancelled when the time to drain is over.
    pub(super) cut: CancellationToken,
}

/// Serves a client until it goes, upstream goes, or the relay has drained. `id` counts connections, for the log.
pub(super) async fn run(id: u64, stream: UnixStream, shared: ConnContext) {
    let turns = shared.tracker.turns();
    turns.clone().run(run_in(turns, id, stream, shared)).await;
}

async fn run_in(turns: Turns, id: u64, stream: UnixStream, shared: ConnContext) {
    let connection = shared.tracker.connected(id, Peer::from_socket(&stream));
    let peer = connection.to_string();
    // Dialled before a byte of the client is read: where the runtime would refuse it, so do we, at once.
    let backlog = Backlog::new();
    let upstream = match Upstream::connect(&shared.upstream, &turns, backlog.clone()).await {
        Ok(dialled) => dialled,
        Err(error) => {
            // The client is told first.
            drop((stream, connection));
            shared.refusals.log(id, &peer, &shared.upstream, &error, &shared.drain).await;
            return;
        }
    };
    info!(connection = id, %peer, "client connected");
    let (start, mut calls) = (Instant::now(), 0);
    let end = tokio::select! {
        end = serve(&turns, connection, stream, backlog, upstream, &shared.drain, &mut calls) => end,
        () = shared.cut.cancelled() => DisconnectReason::DrainTimeout,
    };
    let duration = start.elapsed();
    let reason = match end {
        DisconnectReason::Client => "the client left",
        DisconnectReason::Upstream => "upstream has gone",
        DisconnectReason::Drain => "draining",
        DisconnectReason::DrainTimeout => "the drain timeout is over",
        DisconnectReason::Protocol(error) => {
            warn!(connection = id, %peer, calls, ?duration, %error, "client broke the protocol");
            return;
        }
        DisconnectReason::NotHttp2 => {
            warn!(connection = id, %peer, ?duration, "client does not speak HTTP/2");
            return;
        }
    };
    info!(connection = id, %peer, calls, ?duration, reason, "client disconnected");
}

/// Speaks HTTP/2 with the client, and counts its calls; returns what ended the link.
async fn serve(
    turns: &Turns,
    connection: Arc<ClientConnection>,
    stream: UnixStream,
    backlog: Backlog,
    mut upstream: Upstream,
    drain: &CancellationToken,
    calls: &mut u64,
) -> DisconnectReason {
    let (read, write) = stream.into_split();
    let inlet = Inlet::for_client(read, turns.new_turn(), upstream.backlog.clone());
    let outlet = TrackedWriter::to_client(write, turns.new_turn(), backlog.clone());
    let handshake = h2_settings::server().handshake(join(AuthorityRewriter::new(inlet), outlet));
    let client = tokio::select! {
        client = handshake => client,
        state = poll_fn(|cx| upstream.poll_change(cx)) => {
            // Before the client has finished its handshake there is no session that would log it.
            warn!(connection = connection.id, reason = ?state.reason(), calls = 0, "upstream closed its connection");
            return DisconnectReason::Upstream;
        }
        () = drain.cancelled() => return DisconnectReason::Drain,
    };
    match client {
        Ok(client) => ProxySession::new(connection, client, backlog, upstream, turns).run(drain, calls).await,
        Err(error) if error.is_io() => DisconnectReason::Client,
        Err(_) => DisconnectReason::NotHttp2,
    }
}
