//! A client connection and its upstream connection, from accept to the end of both.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::io::join;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::authority_fix::AuthorityRewriter;
use super::backlog::{Backlog, TrackedWriter};
use super::call::{CallRegistry, ClientConnection};
use super::force_close::CLOSE_GRACE;
use super::h2_settings;
use super::inlet::Inlet;
use super::outcome::DisconnectReason;
use super::peer::Peer;
use super::refusals::Refusals;
use super::session::ProxySession;
use super::turn::Turns;
use super::upstream::Upstream;
use crate::socket::SocketPath;

/// State that the connections of a relay share.
#[derive(Clone, Debug)]
pub(super) struct ConnContext {
    /// Socket of the container runtime, to which calls are forwarded.
    pub(super) upstream: Arc<SocketPath>,
    /// Registry that reports connections and calls.
    pub(super) tracker: CallRegistry,
    /// Log of the clients that were refused.
    pub(super) refusals: Arc<Refusals>,
    /// Cancelled when the relay drains.
    pub(super) drain: CancellationToken,
    /// Cancelled when the drain timeout is over.
    pub(super) cut: CancellationToken,
}

/// Serves a client until the client or upstream closes its connection, or the relay has drained.
/// `id` is the number of the connection, for the log.
pub(super) async fn run(id: u64, stream: UnixStream, shared: ConnContext) {
    let turns = shared.tracker.turns();
    turns.clone().run(run_in(turns, id, stream, shared)).await;
}

async fn run_in(turns: Turns, id: u64, stream: UnixStream, shared: ConnContext) {
    let peer = Peer::from_socket(&stream);
    if shared.tracker.refuses(peer.as_ref()) {
        drop(stream);
        info!(connection = id, peer = ?peer.map(|peer| peer.to_string()), "a fault refused a client");
        return;
    }
    let is_internal = peer.as_ref().is_some_and(Peer::is_this_process);
    let connection = shared.tracker.connected(id, peer);
    let peer = connection.to_string();
    // Upstream is dialled before a byte of the client is read. If the runtime refuses the
    // connection, the relay refuses the client immediately.
    let backlog = Backlog::new();
    let upstream = match Upstream::connect(&shared.upstream, &turns, backlog.clone()).await {
        Ok(dialled) => dialled,
        Err(error) => {
            // The client learns of the refusal first, because logging may wait.
            drop((stream, connection));
            shared.refusals.log(id, &peer, &shared.upstream, &error, &shared.drain).await;
            return;
        }
    };
    // Each command of crictl opens several connections.
    debug!(connection = id, %peer, "client connected");
    let (start, mut calls) = (Instant::now(), 0);
    let end = tokio::select! {
        end = serve(&turns, connection, stream, backlog, upstream, &shared.drain, &mut calls) => end,
        () = shared.cut.cancelled() => DisconnectReason::DrainTimeout,
    };
    let duration = start.elapsed();
    // A connection that its client or a drain ended regularly is of no interest either, and those
    // of probeshim itself are of interest only to its developers.
    let is_regular = matches!(end, DisconnectReason::Client | DisconnectReason::Drain);
    let reason = match end {
        DisconnectReason::Client => "the client closed its connection",
        DisconnectReason::Upstream => "upstream closed its connection",
        DisconnectReason::Drain => "draining",
        DisconnectReason::DrainTimeout => "the drain timeout is over",
        DisconnectReason::Policy => "a fault closed the connection",
        DisconnectReason::Protocol(error) => {
            warn!(connection = id, %peer, calls, ?duration, %error, "client violated HTTP/2");
            return;
        }
        DisconnectReason::NotHttp2 => {
            warn!(connection = id, %peer, ?duration, "client does not speak HTTP/2");
            return;
        }
    };
    if is_internal || is_regular {
        debug!(connection = id, %peer, calls, ?duration, reason, "client disconnected");
    } else {
        info!(connection = id, %peer, calls, ?duration, reason, "client disconnected");
    }
}

/// Speaks HTTP/2 with the client, and counts its calls. Returns the reason for the end of the
/// connection.
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
            // No session exists before the end of the client's handshake, so this is logged here.
            warn!(connection = connection.id, reason = ?state.reason(), calls = 0, "upstream closed its connection");
            return DisconnectReason::Upstream;
        }
        () = drain_without_handshake(drain) => return DisconnectReason::Drain,
    };
    match client {
        Ok(client) => ProxySession::new(connection, client, backlog, upstream, turns).run(drain, calls).await,
        Err(error) if error.is_io() => DisconnectReason::Client,
        Err(_) => DisconnectReason::NotHttp2,
    }
}

/// Waits until a drain has lasted so long that a client without a complete handshake is
/// disconnected. A client that has just connected may have sent its first call already, which is
/// served before the connection is closed.
async fn drain_without_handshake(drain: &CancellationToken) {
    drain.cancelled().await;
    sleep(CLOSE_GRACE).await;
}
