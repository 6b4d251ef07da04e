//! A client and an upstream connection that both stand: calls in, calls out, until one of the two goes.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::io::Join;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::ending::{Ending, LinkEnd};
use super::forward::{Settled, forward};
use super::legacy::Adapter;
use super::outlet::{Blocked, Outlet};
use super::tracker::{CallInFlight, ClientConnection};
use super::upstream::{State, Upstream};

/// How long calls may take to hand on what they had when their upstream went, and the client to read our farewell.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) type Client = Connection<Join<Adapter<OwnedReadHalf>, Outlet<OwnedWriteHalf>>, Bytes>;
type NewCall = (Request<RecvStream>, SendResponse<Bytes>);

/// A stream to reset once everything before that is written, because h2 drops what is queued on a stream that is reset;
/// but not later than this, because a client that reads slowly may never take everything.
struct Reset {
    stream: SendResponse<Bytes>,
    reason: Reason,
    until: Instant,
}

/// The two connections of a link, and the calls between them.
pub(super) struct Joined {
    connection: Arc<ClientConnection>,
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

impl Joined {
    pub(super) fn new(
        connection: Arc<ClientConnection>,
        client: Client,
        blocked: Blocked,
        upstream: Upstream,
    ) -> Self {
        let (calls, resets, lost) = (JoinSet::new(), Vec::new(), Vec::new());
        Self {
            connection,
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

    /// Runs to the end, and counts the calls; returns what ended it.
    pub(super) async fn run(mut self, drain: &CancellationToken, calls: &mut u64) -> LinkEnd {
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
                    return LinkEnd::Drain;
                }
                () = wait_until(reset_at) => self.reset_overdue(),
                accepted = accept => match accepted {
                    Some(Ok((request, respond))) => {
                        *calls += 1;
                        let call = CallInFlight::start(self.connection.clone(), &request);
                        self.calls.spawn(forward(call, request, respond, self.upstream.calls.clone()));
                    }
                    Some(Err(error)) if !is_departure(&error) => {
                        return LinkEnd::Protocol(error);
                    }
                    _ => return LinkEnd::Client,
                },
            }
            if self.gone.is_some() && self.calls.is_empty() {
                return self.farewell().await;
            }
            // A client that does not even acknowledge that we leave must not hold up the drain.
            // (`leaving` first: the token takes a lock, and this is asked at every call.)
            let is_idle =
                self.leaving && drain.is_cancelled() && self.calls.is_empty() && self.resets.is_empty();
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
            Err(error) => {
                error!(connection = self.connection.id, %error, "a call ended by a fault of ours");
            }
        }
    }

    fn upstream_changed(&mut self, state: State) {
        let has_calls = !self.calls.is_empty();
        match state {
            State::Open => {}
            // h2 can give a reason only in its final GOAWAY. While calls run, leave with NO_ERROR now and give the
            // reason at the end.
            State::Leaving(reason) if has_calls || reason == Reason::NO_ERROR => {
                debug!(connection = self.connection.id, ?reason, "upstream is leaving");
                self.leave();
            }
            State::Leaving(reason) | State::Gone(reason) => {
                warn!(
                    connection = self.connection.id,
                    ?reason,
                    calls = self.calls.len(),
                    "upstream closed its connection"
                );
                self.gone = Some(reason);
                self.connection.lost_upstream();
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
    async fn farewell(&mut self) -> LinkEnd {
        let cut_at = self.cut_at;
        let written = poll_fn(|cx| {
            match poll_client(&mut self.client, &self.blocked, &mut self.resets, cx) {
                Poll::Ready(Some(Ok((request, stream)))) => {
                    // It came too late for upstream, which has seen nothing of it. GOAWAY first, as always.
                    self.leave();
                    CallInFlight::start(self.connection.clone(), &request).end.note(Ending::Refused);
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
        LinkEnd::Upstream
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
