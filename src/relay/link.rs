//! One client connection tied to one upstream connection, from accept to the end of both.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::io::{Join, join};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::forward::{Settled, forward};
use super::legacy::Adapter;
use super::outlet::{Blocked, Outlet};
use super::peer::Peer;
use super::tuning;
use super::upstream::{State, Upstream};
use crate::socket::SocketPath;

/// How long calls may take to hand on what they had when their upstream went, and the client to read our farewell.
const FAREWELL: Duration = Duration::from_secs(1);

type Client = Connection<Join<Adapter<OwnedReadHalf>, Outlet<OwnedWriteHalf>>, Bytes>;
type NewCall = (Request<RecvStream>, SendResponse<Bytes>);

/// A stream to reset once everything before that is written, because h2 drops what is queued on a stream that is reset;
/// but not later than this, because a client that reads slowly may never take everything.
struct Reset {
    stream: SendResponse<Bytes>,
    reason: Reason,
    until: Instant,
}

/// What ended a link.
enum End {
    /// The client went, after a drain perhaps.
    Client,
    /// The client broke the rules of HTTP/2.
    Protocol(h2::Error),
    /// The client's first bytes were not those of HTTP/2.
    Stranger,
    /// Upstream went.
    Upstream,
    /// The relay drained before the client had said a word.
    Drain,
    /// The drain timeout was over.
    Cut,
}

/// A link whose two connections stand.
struct Link {
    id: u64,
    client: Client,
    /// Whether the client's socket takes no more at the moment.
    blocked: Blocked,
    upstream: Upstream,
    calls: JoinSet<Settled>,
    /// In the order of their times.
    resets: Vec<Reset>,
    /// Streams whose upstream connection broke: they end with the client's connection, not before.
    lost: Vec<SendResponse<Bytes>>,
    leaving: bool,
    /// Set once upstream is gone: why.
    gone: Option<Reason>,
    /// Set once a call is lost: until when the others may hand on what they have.
    cut_at: Option<Instant>,
    /// Set while the relay drains and nothing is left to do here: until when the client may go by itself.
    idle_until: Option<Instant>,
}

/// What links have in common.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// Where calls go.
    pub(super) upstream: Arc<SocketPath>,
    /// Cancelled when the relay drains.
    pub(super) drain: CancellationToken,
    /// Cancelled when the time to drain is over.
    pub(super) cut: CancellationToken,
}

/// Serves a client until it goes, upstream goes, or the relay has drained. `id` counts connections, for the log.
pub(super) async fn run(id: u64, stream: UnixStream, shared: Shared) {
    let peer = Peer::of(&stream).map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    // Dialled before a byte of the client is read: where the runtime would refuse it, so do we, at once.
    let upstream = match Upstream::dial(&shared.upstream).await {
        Ok(dialled) => dialled,
        Err(error) => {
            let upstream = &shared.upstream;
            warn!(connection = id, %peer, %upstream, %error, "upstream is not there: client refused");
            return;
        }
    };
    info!(connection = id, %peer, "client connected");
    let (start, mut calls) = (Instant::now(), 0);
    let end = tokio::select! {
        end = serve(id, stream, upstream, &shared.drain, &mut calls) => end,
        () = shared.cut.cancelled() => End::Cut,
    };
    let duration = start.elapsed();
    let reason = match end {
        End::Client => "the client left",
        End::Upstream => "upstream has gone",
        End::Drain => "draining",
        End::Cut => "the drain timeout is over",
        End::Protocol(error) => {
            warn!(connection = id, %peer, calls, ?duration, %error, "client broke the protocol");
            return;
        }
        End::Stranger => {
            warn!(connection = id, %peer, ?duration, "client does not speak HTTP/2");
            return;
        }
    };
    info!(connection = id, %peer, calls, ?duration, reason, "client disconnected");
}

/// Speaks HTTP/2 with the client, and counts its calls; returns what ended the link.
async fn serve(
    id: u64,
    stream: UnixStream,
    mut upstream: Upstream,
    drain: &CancellationToken,
    calls: &mut u64,
) -> End {
    let (read, write) = stream.into_split();
    let (outlet, blocked) = Outlet::new(write);
    let handshake = tuning::server().handshake(join(Adapter::new(read), outlet));
    let client = tokio::select! {
        client = handshake => client,
        _ = upstream.changed() => return End::Upstream,
        () = drain.cancelled() => return End::Drain,
    };
    match client {
        Ok(client) => Link::new(id, client, blocked, upstream).run(drain, calls).await,
        Err(error) if error.is_io() => End::Client,
        Err(_) => End::Stranger,
    }
}

impl Link {
    fn new(id: u64, client: Client, blocked: Blocked, upstream: Upstream) -> Self {
        let (calls, resets, lost) = (JoinSet::new(), Vec::new(), Vec::new());
        Self {
            id,
            client,
            blocked,
            upstream,
            calls,
            resets,
            lost,
            leaving: false,
            gone: None,
            cut_at: None,
            idle_until: None,
        }
    }

    async fn run(mut self, drain: &CancellationToken, calls: &mut u64) -> End {
        let mut drained = pin!(drain.cancelled());
        loop {
            let reset_at = self.resets.first().map(|reset| reset.until);
            let accept = poll_fn(|cx| poll_client(&mut self.client, &self.blocked, &mut self.resets, cx));
            tokio::select! {
                biased;
                // First what is finished: whether calls are left decides how the rest ends.
                Some(settled) = self.calls.join_next() => self.settle(settled),
                state = self.upstream.changed(), if self.gone.is_none() => self.upstream_changed(state),
                () = &mut drained, if !self.leaving => self.leave(),
                () = wait_until(self.cut_at) => return self.farewell().await,
                () = wait_until(self.idle_until) => {
                    self.farewell().await;
                    return End::Drain;
                }
                () = wait_until(reset_at) => self.reset_overdue(),
                accepted = accept => match accepted {
                    Some(Ok((request, respond))) => {
                        *calls += 1;
                        self.calls.spawn(forward(self.id, request, respond, self.upstream.calls.clone()));
                    }
                    Some(Err(error)) if !is_departure(&error) => {
                        return End::Protocol(error);
                    }
                    _ => return End::Client,
                },
            }
            if self.gone.is_some() && self.calls.is_empty() {
                return self.farewell().await;
            }
            // A client that does not even acknowledge that we leave must not hold up the drain.
            let is_idle = drain.is_cancelled() && self.calls.is_empty() && self.resets.is_empty();
            self.idle_until =
                if is_idle { self.idle_until.or_else(|| Some(Instant::now() + FAREWELL)) } else { None };
        }
    }

    fn settle(&mut self, settled: Result<Settled, JoinError>) {
        match settled {
            Ok(Settled::Done) => {}
            Ok(Settled::Reset(stream, reason)) => {
                self.resets.push(Reset { stream, reason, until: Instant::now() + FAREWELL });
            }
            Ok(Settled::Refused(mut respond)) => {
                // GOAWAY first: a client that sends the call again must not send it here.
                self.leave();
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            Ok(Settled::Lost(respond)) => {
                self.lost.push(respond);
                self.cut_at.get_or_insert_with(|| Instant::now() + FAREWELL);
            }
            Err(error) => error!(connection = self.id, %error, "a call ended by a fault of ours"),
        }
    }

    fn upstream_changed(&mut self, state: State) {
        let has_calls = !self.calls.is_empty();
        match state {
            State::Open => {}
            // h2 can give a reason only in its final GOAWAY. While calls run, leave with NO_ERROR now and give the
            // reason at the end.
            State::Leaving(reason) if has_calls || reason == Reason::NO_ERROR => {
                debug!(connection = self.id, ?reason, "upstream is leaving");
                self.leave();
            }
            State::Leaving(reason) | State::Gone(reason) => {
                warn!(
                    connection = self.id,
                    ?reason,
                    calls = self.calls.len(),
                    "upstream closed its connection"
                );
                self.gone = Some(reason);
                if has_calls {
                    self.leave();
                }
            }
        }
    }

    /// Asks the client to open no more streams here, and lets those that are open finish.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            self.client.graceful_shutdown();
        }
    }

    /// Resets the streams whose data the client has had time enough to take.
    fn reset_overdue(&mut self) {
        let now = Instant::now();
        for mut overdue in self.resets.extract_if(.., |reset| reset.until <= now) {
            overdue.stream.send_reset(overdue.reason);
        }
    }

    /// Closes the client's connection as upstream closed ours, once what calls have handed on is written. A client may take
    /// its time to read, unless another call waits to learn that it is lost.
    async fn farewell(&mut self) -> End {
        let cut_at = self.cut_at;
        let written = poll_fn(|cx| {
            match poll_client(&mut self.client, &self.blocked, &mut self.resets, cx) {
                Poll::Ready(Some(Ok((_, stream)))) => {
                    // It came too late for upstream, which has seen nothing of it. GOAWAY first, as always.
                    self.leave();
                    self.resets.push(Reset { stream, reason: Reason::REFUSED_STREAM, until: Instant::now() });
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending if self.blocked.is_set() || !self.resets.is_empty() => {
                    self.leave();
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        });
        tokio::select! {
            biased;
            () = written => {}
            () = wait_until(cut_at) => {}
        }
        self.client.abrupt_shutdown(self.gone.unwrap_or(Reason::NO_ERROR));
        let closed = async { while let Some(Ok(_)) = self.client.accept().await {} };
        // A client that does not read is not waited for.
        let _ = timeout(FAREWELL, closed).await;
        End::Upstream
    }
}

/// Moves the client's frames; a new call is ready, or the end. Resets what is to be reset as soon as nothing is left to be
/// written before.
fn poll_client(
    client: &mut Client,
    blocked: &Blocked,
    resets: &mut Vec<Reset>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<NewCall, h2::Error>>> {
    loop {
        let accepted = client.poll_accept(cx);
        if accepted.is_ready() || blocked.is_set() || resets.is_empty() {
            return accepted;
        }
        for mut reset in resets.drain(..) {
            reset.stream.send_reset(reset.reason);
        }
    }
}

/// A client that goes with answers unread resets its socket, and one that says GOAWAY may give any reason: ways to go, too.
fn is_departure(error: &h2::Error) -> bool {
    error.is_io() || (error.is_go_away() && error.is_remote())
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
