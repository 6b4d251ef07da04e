//! A session: the client's connection, its upstream connection and the calls between them, until one of the two ends.

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
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::authority_fix::AuthorityRewriter;
use super::backlog::{Backlog, TrackedWriter};
use super::call::{CallInFlight, ClientConnection};
use super::calls::CallSet;
use super::forward::{Backlogs, SettledCall, forward};
use super::h2_settings::MAX_CONCURRENT_STREAMS;
use super::inlet::Inlet;
use super::metrics::Limit;
use super::outcome::{CallOutcome, DisconnectReason};
use super::reset_rate::ResetRate;
use super::turn::{Turn, Turns};
use super::upstream::{Upstream, UpstreamState};

/// Time that a client may read nothing of the remaining data of calls after upstream is gone, or of the final GOAWAY.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

pub(super) type DownstreamConnection =
    Connection<Join<AuthorityRewriter<Inlet<OwnedReadHalf>>, TrackedWriter<OwnedWriteHalf>>, Bytes>;
type NewCall = (Request<RecvStream>, SendResponse<Bytes>);

/// A stream to reset once everything before that is written, because h2 drops what is queued on a stream that is reset;
/// but not later than this, because a client that reads slowly may never take everything.
struct PendingReset {
    stream: SendResponse<Bytes>,
    reason: Reason,
    deadline: Instant,
}

/// The time at which the client's connection is closed although calls still hand on data, because a lost call waits.
#[derive(Clone, Copy)]
struct ForceClose {
    at: Instant,
    /// Bytes that the client had taken when the time was set.
    bytes_written: u64,
}

impl ForceClose {
    fn new(client: &Backlog) -> Self {
        Self { at: Instant::now() + CLOSE_GRACE, bytes_written: client.written() }
    }

    /// Returns a later time if the client has taken something since this one was set.
    fn postponed(self, client: &Backlog) -> Option<Self> {
        (client.written() != self.bytes_written).then(|| Self::new(client))
    }
}

/// An event of a session.
#[expect(clippy::large_enum_variant, reason = "it is handled at once, and a new call is what happens most")]
enum SessionEvent {
    /// A call has ended.
    CallSettled(SettledCall),
    /// The state of the upstream connection has changed.
    UpstreamChanged(UpstreamState),
    /// The client has sent a new call, or its connection has ended.
    ClientAccepted(Option<Result<NewCall, h2::Error>>),
}

/// The two connections of a session, and the calls between them. All of it is one task.
pub(super) struct ProxySession {
    connection: Arc<ClientConnection>,
    client: DownstreamConnection,
    backlogs: Backlogs,
    upstream: Upstream,
    calls: CallSet,
    /// Budget of the poll in which new calls are accepted.
    accept_turn: Turn,
    /// Limits that are reached now.
    reached_limits: Vec<Limit>,
    reset_rate: ResetRate,
    /// The end of the pause in which the client is not read because it has reset too many calls.
    paused_until: Option<Instant>,
    /// Pending resets, in the order of their deadlines.
    pending_resets: Vec<PendingReset>,
    /// Streams whose upstream connection broke: they end with the client's connection, not before.
    lost_streams: Vec<SendResponse<Bytes>>,
    going_away: bool,
    /// The reason of the final GOAWAY to the client; set once upstream is gone.
    close_reason: Option<Reason>,
    /// Set once a call is lost: the time until which the other calls may hand on their data.
    force_close: Option<ForceClose>,
    /// Set while the relay drains and the session is idle: the time until which the client may close its connection itself.
    idle_deadline: Option<Instant>,
}

impl ProxySession {
    pub(super) fn new(
        connection: Arc<ClientConnection>,
        client: DownstreamConnection,
        backlog: Backlog,
        upstream: Upstream,
        turns: &Turns,
    ) -> Self {
        let backlogs = Backlogs { client: backlog, upstream: upstream.backlog.clone() };
        Self {
            connection,
            client,
            backlogs,
            upstream,
            calls: CallSet::new(turns.new_turn()),
            accept_turn: turns.new_turn(),
            reached_limits: Vec::new(),
            reset_rate: ResetRate::new(Instant::now()),
            paused_until: None,
            pending_resets: Vec::new(),
            lost_streams: Vec::new(),
            going_away: false,
            close_reason: None,
            force_close: None,
            idle_deadline: None,
        }
    }

    /// Runs the session to its end, and counts its calls. Returns the reason of its end.
    pub(super) async fn run(mut self, drain: &CancellationToken, call_count: &mut u64) -> DisconnectReason {
        let reason = self.run_to_end(drain, call_count).await;
        let Self { client, upstream, calls, .. } = self;
        // Both sides learn at once that the calls on them have ended, however long it takes to drop those.
        drop((client, upstream));
        calls.abandon().await;
        reason
    }

    async fn run_to_end(&mut self, drain: &CancellationToken, call_count: &mut u64) -> DisconnectReason {
        let mut drained = pin!(drain.cancelled());
        loop {
            let next_reset = self.pending_resets.first().map(|reset| reset.deadline);
            let (force_close_at, idle_deadline, going_away) =
                (self.force_close.map(|force_close| force_close.at), self.idle_deadline, self.going_away);
            let paused_until = self.paused_until;
            tokio::select! {
                biased;
                event = poll_fn(|cx| self.poll_event(cx)) => match event {
                    SessionEvent::CallSettled(settled) => self.finish_call(settled),
                    SessionEvent::UpstreamChanged(state) => self.upstream_changed(state),
                    SessionEvent::ClientAccepted(Some(Ok((request, respond)))) => {
                        *call_count += 1;
                        self.start_call(request, respond);
                    }
                    SessionEvent::ClientAccepted(Some(Err(error))) if !is_clean_disconnect(&error) => {
                        return DisconnectReason::Protocol(error);
                    }
                    SessionEvent::ClientAccepted(_) => return DisconnectReason::Client,
                },
                () = &mut drained, if !going_away => self.send_goaway(),
                () = wait_until(force_close_at) => {
                    self.force_close = self.force_close.and_then(|force_close| force_close.postponed(&self.backlogs.client));
                    if self.force_close.is_none() {
                        return self.close_gracefully().await;
                    }
                }
                () = wait_until(idle_deadline) => {
                    self.close_gracefully().await;
                    return DisconnectReason::Drain;
                }
                () = wait_until(next_reset) => self.send_overdue_resets(),
                () = wait_until(paused_until) => self.paused_until = None,
            }
            if self.close_reason.is_some() && self.calls.is_empty() {
                return self.close_gracefully().await;
            }
            // A client that does not even acknowledge that we leave must not hold up the drain.
            // (`going_away` first: the token takes a lock, and this is asked at every call.)
            let is_idle = self.going_away
                && drain.is_cancelled()
                && self.calls.is_empty()
                && self.pending_resets.is_empty();
            self.idle_deadline = if is_idle {
                self.idle_deadline.or_else(|| Some(Instant::now() + CLOSE_GRACE))
            } else {
                None
            };
        }
    }

    /// Moves the frames of both connections and the calls between them, until something happens.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        self.upstream.poll_frames(cx);
        // What is finished comes first: whether calls are left decides how the rest ends.
        if let Poll::Ready(settled) = self.calls.poll_settled(cx) {
            return Poll::Ready(SessionEvent::CallSettled(settled));
        }
        if let Some(state) = self.upstream.take_change() {
            return Poll::Ready(SessionEvent::UpstreamChanged(state));
        }
        if self.calls.made_progress() {
            // What they have sent is written at once, and not after the next turns of other connections. News of upstream that
            // comes with it waits for the calls that end with it.
            self.upstream.poll_frames(cx);
        }
        self.update_limits();
        self.backlogs.upstream.pause_source(self.calls.are_behind() || self.paused_until.is_some());
        if self.accept_turn.is_exhausted(cx) {
            return Poll::Pending;
        }
        let was_full = self.backlogs.client.is_full_of_heads();
        let accepted = poll_client(&mut self.client, &self.backlogs.client, &mut self.pending_resets, cx);
        if was_full && !self.backlogs.client.is_full_of_heads() {
            // The upstream connection is read again.
            cx.waker().wake_by_ref();
        }
        accepted.map(SessionEvent::ClientAccepted)
    }

    /// Starts a new call.
    fn start_call(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let call = CallInFlight::start(self.connection.clone(), &request);
        let (upstream, backlogs) = (self.upstream.calls.clone(), self.backlogs.clone());
        self.calls.push(forward(call, request, respond, upstream, backlogs));
    }

    /// Counts the limits that are reached, each once until there is room again.
    fn update_limits(&mut self) {
        for limit in Limit::ALL {
            let is_reached = match limit {
                Limit::Streams => self.calls.len() >= MAX_CONCURRENT_STREAMS as usize,
                Limit::UnwrittenBytes => self.backlogs.upstream.is_full(),
                Limit::Resets => self.paused_until.is_some(),
            };
            if !is_reached {
                self.reached_limits.retain(|reached| *reached != limit);
            } else if !self.reached_limits.contains(&limit) {
                self.reached_limits.push(limit);
                debug!(connection = self.connection.id, ?limit, "a limit of the connection is reached");
                self.connection.reached(limit);
            }
        }
    }

    fn finish_call(&mut self, settled: SettledCall) {
        match settled {
            SettledCall::Done => {}
            SettledCall::ResetByClient => {
                self.paused_until = self.reset_rate.count(Instant::now()).or(self.paused_until);
            }
            SettledCall::Reset(stream, reason) => {
                self.pending_resets.push(PendingReset {
                    stream,
                    reason,
                    deadline: Instant::now() + CLOSE_GRACE,
                });
            }
            SettledCall::Refused(mut respond) => {
                // GOAWAY first: a client that sends the call again must not send it here.
                self.send_goaway();
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            SettledCall::Lost(respond) => {
                self.lost_streams.push(respond);
                self.force_close.get_or_insert_with(|| ForceClose::new(&self.backlogs.client));
            }
        }
    }

    fn upstream_changed(&mut self, state: UpstreamState) {
        let has_calls = !self.calls.is_empty();
        match state {
            UpstreamState::Open => {}
            // h2 can give a reason only in its final GOAWAY. While calls run, leave with NO_ERROR now and give the
            // reason at the end.
            UpstreamState::GoingAway(reason) if has_calls || reason == Reason::NO_ERROR => {
                debug!(connection = self.connection.id, ?reason, "upstream is leaving");
                self.send_goaway();
            }
            UpstreamState::GoingAway(reason) | UpstreamState::Closed(reason) => {
                warn!(
                    connection = self.connection.id,
                    ?reason,
                    calls = self.calls.len(),
                    "upstream closed its connection"
                );
                self.close_reason = Some(reason);
                self.connection.mark_upstream_gone();
                if has_calls {
                    self.send_goaway();
                }
            }
        }
    }

    /// Asks the client to open no more streams here, and lets those that are open finish.
    fn send_goaway(&mut self) {
        if !self.going_away {
            self.going_away = true;
            self.client.graceful_shutdown();
        }
    }

    /// Resets the streams whose data the client has had time enough to take.
    fn send_overdue_resets(&mut self) {
        let now = Instant::now();
        for mut overdue in self.pending_resets.extract_if(.., |reset| reset.deadline <= now) {
            overdue.stream.send_reset(overdue.reason);
        }
    }

    /// Closes the client's connection as upstream closed ours, once what calls have handed on is written. A client may take
    /// its time to read, unless another call waits to learn that it is lost.
    async fn close_gracefully(&mut self) -> DisconnectReason {
        self.backlogs.upstream.close();
        let (backlog, mut force_close) = (self.backlogs.client.clone(), self.force_close);
        // Without a cut, a lost call has waited for as long as it may.
        let is_overdue = force_close.is_none() && !self.lost_streams.is_empty();
        let written = poll_fn(|cx| {
            match poll_client(&mut self.client, &self.backlogs.client, &mut self.pending_resets, cx) {
                Poll::Ready(Some(Ok((request, stream)))) => {
                    // It came too late for upstream, which has seen nothing of it. GOAWAY first, as always.
                    self.send_goaway();
                    CallInFlight::start(self.connection.clone(), &request).end.note(CallOutcome::Refused);
                    self.pending_resets.push(PendingReset {
                        stream,
                        reason: Reason::REFUSED_STREAM,
                        deadline: Instant::now(),
                    });
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending if self.backlogs.client.is_blocked() || !self.pending_resets.is_empty() => {
                    self.send_goaway();
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        });
        let forced = async {
            if is_overdue {
                return;
            }
            loop {
                wait_until(force_close.map(|force_close| force_close.at)).await;
                force_close = force_close.and_then(|force_close| force_close.postponed(&backlog));
                if force_close.is_none() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = written => {}
            () = forced => {}
        }
        self.client.abrupt_shutdown(self.close_reason.unwrap_or(Reason::NO_ERROR));
        let closed = async { while let Some(Ok(_)) = self.client.accept().await {} };
        // A client that does not read is not waited for.
        let _ = timeout(CLOSE_GRACE, closed).await;
        DisconnectReason::Upstream
    }
}

/// Moves the client's frames; a new call is ready, or the end. Resets what is to be reset as soon as nothing is left to be
/// written before.
fn poll_client(
    client: &mut DownstreamConnection,
    backlog: &Backlog,
    resets: &mut Vec<PendingReset>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<NewCall, h2::Error>>> {
    loop {
        let accepted = client.poll_accept(cx);
        backlog.polled();
        if accepted.is_ready() || backlog.is_blocked() || resets.is_empty() {
            return accepted;
        }
        for mut reset in resets.drain(..) {
            reset.stream.send_reset(reset.reason);
        }
    }
}

/// A client that goes with answers unread resets its socket, and one that says GOAWAY may give any reason: ways to go, too.
fn is_clean_disconnect(error: &h2::Error) -> bool {
    error.is_io() || (error.is_go_away() && error.is_remote())
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
