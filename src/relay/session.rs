//! A session: the client's connection, its upstream connection and the calls between them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::io::Join;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::authority_fix::AuthorityRewriter;
use super::backlog::{Backlog, TrackedWriter};
use super::call::{CallInFlight, ClientConnection};
use super::calls::CallSet;
use super::force_close::{CLOSE_GRACE, ForceClose};
use super::forward::{Backlogs, SettledCall, forward};
use super::h2_settings::MAX_CONCURRENT_STREAMS;
use super::inlet::Inlet;
use super::intercept::intercept;
use super::metrics::Limit;
use super::outcome::{CallOutcome, DisconnectReason};
use super::reset_rate::ResetRate;
use super::turn::{Turn, Turns};
use super::upstream::{Upstream, UpstreamState};
use crate::deadline;

pub(super) type DownstreamConnection =
    Connection<Join<AuthorityRewriter<Inlet<OwnedReadHalf>>, TrackedWriter<OwnedWriteHalf>>, Bytes>;
type NewCall = (Request<RecvStream>, SendResponse<Bytes>);

/// A stream that is reset once all data before the reset is written, because h2 drops the queued
/// data of a stream that is reset. The deadline bounds the wait, because a client that reads slowly
/// may never take all data.
struct PendingReset {
    stream: SendResponse<Bytes>,
    reason: Reason,
    deadline: Instant,
}

/// An event of a session.
#[expect(clippy::large_enum_variant, reason = "events are handled immediately, and most are new calls")]
enum SessionEvent {
    /// A call has ended.
    CallSettled(SettledCall),
    /// The state of the upstream connection has changed.
    UpstreamChanged(UpstreamState),
    /// The client has sent a new call, or its connection has ended.
    ClientAccepted(Option<Result<NewCall, h2::Error>>),
}

/// The two connections of a session, and the calls between them. The session is one task.
pub(super) struct ProxySession {
    connection: Arc<ClientConnection>,
    client: DownstreamConnection,
    backlogs: Backlogs,
    upstream: Upstream,
    calls: CallSet,
    /// Turn in which new calls are accepted.
    accept_turn: Turn,
    /// Limits that are currently reached.
    reached_limits: Vec<Limit>,
    reset_rate: ResetRate,
    /// End of the pause in which the client is not read because it has reset too many calls.
    paused_until: Option<Instant>,
    /// Pending resets, in the order of their deadlines.
    pending_resets: Vec<PendingReset>,
    /// Streams whose upstream connection broke. They end with the client's connection, not before.
    lost_streams: Vec<SendResponse<Bytes>>,
    going_away: bool,
    /// Reason of the final GOAWAY to the client. It is set once upstream is gone.
    close_reason: Option<Reason>,
    /// Time until which the other calls may forward their data. It is set once a call is lost.
    force_close: Option<ForceClose>,
    /// Time until which the client may close its connection itself. It is set while the relay
    /// drains and the session is idle.
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

    /// Runs the session to its end, and counts its calls. Returns the reason for its end.
    pub(super) async fn run(mut self, drain: &CancellationToken, call_count: &mut u64) -> DisconnectReason {
        let reason = self.run_to_end(drain, call_count).await;
        let Self { client, upstream, calls, .. } = self;
        // Both sides learn immediately that their calls have ended, however long the drop of the
        // calls takes.
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
                    SessionEvent::CallSettled(SettledCall::Disconnected) => {
                        self.connection.mark_upstream_gone();
                        return DisconnectReason::Policy;
                    }
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
                () = deadline::reached(force_close_at) => {
                    self.force_close = self.force_close.and_then(|force_close| force_close.postponed(&self.backlogs.client));
                    if self.force_close.is_none() {
                        return self.close_gracefully().await;
                    }
                }
                () = deadline::reached(idle_deadline) => {
                    self.close_gracefully().await;
                    return DisconnectReason::Drain;
                }
                () = deadline::reached(next_reset) => self.send_overdue_resets(),
                () = deadline::reached(paused_until) => self.paused_until = None,
            }
            if self.close_reason.is_some() && self.calls.is_empty() {
                return self.close_gracefully().await;
            }
            // A client that does not even acknowledge the GOAWAY must not hold up the drain.
            // `going_away` comes first, because the token takes a lock and this runs for every
            // call.
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

    /// Moves the frames of both connections and the calls between them, until an event occurs.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        self.upstream.poll_frames(cx);
        // Settled calls come first: the way in which the session ends depends on whether calls are
        // left.
        if let Poll::Ready(settled) = self.calls.poll_settled(cx) {
            return Poll::Ready(SessionEvent::CallSettled(settled));
        }
        if let Some(state) = self.upstream.take_change() {
            return Poll::Ready(SessionEvent::UpstreamChanged(state));
        }
        if self.calls.made_progress() {
            // The data that the calls have sent is written now, and not after the next turns of
            // other connections. A change of upstream that arrives with it waits for the calls that
            // end with it.
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
            // Wakes the task, so that the upstream connection is read again.
            cx.waker().wake_by_ref();
        }
        accepted.map(SessionEvent::ClientAccepted)
    }

    fn start_call(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let call = CallInFlight::start(self.connection.clone(), &request);
        let (upstream, backlogs) = (self.upstream.calls.clone(), self.backlogs.clone());
        match call.interceptor() {
            None => self.calls.push(forward(call, request, respond, upstream, backlogs)),
            Some(interceptor) => {
                self.calls.push(intercept(call, interceptor, request, respond, upstream, backlogs));
            }
        }
    }

    /// Counts the limits that are reached. Each counts once until there is room again.
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
                debug!(connection = self.connection.id, ?limit, "connection reached a limit");
                self.connection.reached(limit);
            }
        }
    }

    fn finish_call(&mut self, settled: SettledCall) {
        match settled {
            SettledCall::Done | SettledCall::Disconnected => {}
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
                // GOAWAY comes first: a client that sends the call again must not send it on this
                // connection.
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
            // h2 can send a reason only in its final GOAWAY. While calls run, the relay sends
            // NO_ERROR now, and the reason at the end.
            UpstreamState::GoingAway(reason) if has_calls || reason == Reason::NO_ERROR => {
                debug!(connection = self.connection.id, ?reason, "upstream is going away");
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

    /// Sends GOAWAY: the client may open no more streams on this connection, and open streams may
    /// finish.
    fn send_goaway(&mut self) {
        if !self.going_away {
            self.going_away = true;
            self.client.graceful_shutdown();
        }
    }

    /// Resets the streams whose data the client has had enough time to take.
    fn send_overdue_resets(&mut self) {
        let now = Instant::now();
        for mut overdue in self.pending_resets.extract_if(.., |reset| reset.deadline <= now) {
            overdue.stream.send_reset(overdue.reason);
        }
    }

    /// Closes the client's connection as upstream closed its own, once the data that calls have
    /// forwarded is written. A client may read slowly, unless another call waits to learn that it
    /// is lost.
    async fn close_gracefully(&mut self) -> DisconnectReason {
        self.backlogs.upstream.close();
        let (backlog, mut force_close) = (self.backlogs.client.clone(), self.force_close);
        // Without a forced close, a lost call has waited for the maximum time.
        let is_overdue = force_close.is_none() && !self.lost_streams.is_empty();
        let written = poll_fn(|cx| {
            match poll_client(&mut self.client, &self.backlogs.client, &mut self.pending_resets, cx) {
                Poll::Ready(Some(Ok((request, stream)))) => {
                    // The call arrived too late for upstream, which has received no byte of it.
                    // GOAWAY comes first, as for other refused calls.
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
                deadline::reached(force_close.map(|force_close| force_close.at)).await;
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
        // A client that does not read must not hold up the close.
        let _ = timeout(CLOSE_GRACE, closed).await;
        DisconnectReason::Upstream
    }
}

/// Moves the client's frames until a new call or the end of the connection is ready. Sends the
/// pending resets as soon as no data before them is left to be written.
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

/// Returns whether the client closed its connection regularly. A client that leaves responses
/// unread resets its socket, and a client may send GOAWAY with any reason.
fn is_clean_disconnect(error: &h2::Error) -> bool {
    error.is_io() || (error.is_go_away() && error.is_remote())
}
