//! Limits the work of a connection on the relay's thread before other connections run.
//!
//! Connections share a thread, and each is one task, so that ready tasks take turns. A task
//! must therefore end its poll soon, however much work it has. Each part of a connection (reading
//! and writing on both sides, and the calls) has its own turn in each poll, so that no part starves
//! another.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::metrics::RelayMetrics;

/// Duration in nanoseconds of the turn of one part in one poll. A call with small messages passes
/// without an interruption, and a call of another connection, which waits for several turns, is not
/// late.
const TURN: u64 = 50_000;

/// Hands out the turns of one connection.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    /// Number of polls of the connection's task.
    polls: Arc<AtomicU64>,
    /// Set when a turn was too short for the available work.
    exhausted: Arc<AtomicBool>,
    start: Instant,
    metrics: RelayMetrics,
}

/// Turns of one part of a connection. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Turn(Arc<TurnState>);

#[derive(Debug)]
struct TurnState {
    turns: Turns,
    /// Number of the last poll in which the part had work.
    poll: AtomicU64,
    /// End of the part's turn in that poll, in nanoseconds since the start.
    end: AtomicU64,
    /// Whether the part has had work since the last call of [`Turn::made_progress`].
    worked: AtomicBool,
    /// Whether the part's last turn was too short.
    behind: AtomicBool,
}

/// Status of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnStatus {
    /// The turn has just started.
    Started,
    /// The turn is running.
    Running,
    /// The turn ended this long ago.
    Exhausted(Duration),
}

impl Turns {
    pub(super) fn new(metrics: RelayMetrics) -> Self {
        let (polls, exhausted) = (Arc::new(AtomicU64::new(1)), Arc::default());
        Self { polls, exhausted, start: Instant::now(), metrics }
    }

    /// Returns a turn for one more part of the connection.
    pub(super) fn new_turn(&self) -> Turn {
        Turn(Arc::new(TurnState {
            turns: self.clone(),
            poll: AtomicU64::new(0),
            end: AtomicU64::new(0),
            worked: AtomicBool::new(false),
            behind: AtomicBool::new(false),
        }))
    }

    /// Runs the connection's task. The parts have new turns in each poll of the task.
    pub(super) async fn run<F: Future>(self, connection: F) -> F::Output {
        let mut connection = pin!(connection);
        std::future::poll_fn(|cx| {
            self.polls.fetch_add(1, Ordering::Relaxed);
            let polled = connection.as_mut().poll(cx);
            if self.exhausted.swap(false, Ordering::Relaxed) {
                self.metrics.turns_exhausted.inc();
            }
            polled
        })
        .await
    }
}

impl Turn {
    /// Returns the status of the turn. The first call in a poll starts it.
    pub(super) fn status(&self) -> TurnStatus {
        let TurnState { turns, poll, end, worked, behind } = &*self.0;
        worked.store(true, Ordering::Relaxed);
        let now = u64::try_from(turns.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let current = turns.polls.load(Ordering::Relaxed);
        if poll.load(Ordering::Relaxed) != current {
            poll.store(current, Ordering::Relaxed);
            end.store(now.saturating_add(TURN), Ordering::Relaxed);
            behind.store(false, Ordering::Relaxed);
            return TurnStatus::Started;
        }
        match now.checked_sub(end.load(Ordering::Relaxed)) {
            None => TurnStatus::Running,
            Some(late) => {
                turns.exhausted.store(true, Ordering::Relaxed);
                behind.store(true, Ordering::Relaxed);
                TurnStatus::Exhausted(Duration::from_nanos(late))
            }
        }
    }

    /// Returns whether the part has more work than its last turn allowed.
    pub(super) fn is_behind(&self) -> bool {
        self.0.behind.load(Ordering::Relaxed)
    }

    /// Returns whether the part has had work since the last call of this function.
    pub(super) fn made_progress(&self) -> bool {
        self.0.worked.swap(false, Ordering::Relaxed)
    }

    /// Returns whether the part must wait for its next turn. If so, wakes the task for that turn.
    pub(super) fn is_exhausted(&self, cx: &Context<'_>) -> bool {
        let is_over = matches!(self.status(), TurnStatus::Exhausted(_));
        if is_over {
            cx.waker().wake_by_ref();
        }
        is_over
    }
}

/// A future that is polled only within the turn of its part.
#[derive(Debug)]
pub(super) struct InTurn<F> {
    turn: Turn,
    future: F,
}

impl<F> InTurn<F> {
    pub(super) fn new(turn: Turn, future: F) -> Self {
        Self { turn, future }
    }
}

impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.turn.is_exhausted(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.future).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Waker;

    use futures_util::FutureExt as _;

    use super::*;

    /// Works for two turns, at any speed of the machine.
    fn work() {
        let start = std::time::SystemTime::now();
        while start.elapsed().is_ok_and(|elapsed| elapsed < Duration::from_nanos(2 * TURN)) {}
    }

    #[test]
    fn a_turn_starts_with_each_poll_and_ends_with_its_budget() {
        let turns = Turns::new(RelayMetrics::default());
        let (reading, calls) = (turns.new_turn(), turns.new_turn());
        let task = turns.clone().run(std::future::poll_fn(|_| {
            assert_eq!(reading.status(), TurnStatus::Started);
            work();
            assert!(matches!(reading.status(), TurnStatus::Exhausted(_)));
            assert_eq!(calls.status(), TurnStatus::Started, "one part took the turn of another");
            Poll::<()>::Pending
        }));
        let mut task = pin!(task);
        let mut cx = Context::from_waker(Waker::noop());
        for polls in 1..=3 {
            assert!(task.as_mut().poll(&mut cx).is_pending());
            assert_eq!(turns.metrics.turns_exhausted.get(), polls);
        }
    }

    #[test]
    fn a_poll_of_many_ready_calls_ends_with_the_budget_of_its_turn() {
        let turns = Turns::new(RelayMetrics::default());
        let polled = Arc::new(AtomicUsize::new(0));
        let mut calls = super::super::calls::CallSet::new(turns.new_turn());
        for _ in 0..1000 {
            let polled = polled.clone();
            calls.push(async move {
                work();
                polled.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            });
        }
        let mut task = pin!(turns.run(std::future::poll_fn(|cx| calls.poll_settled(cx).map(drop))));
        for polls in 1..=10 {
            assert!((&mut task).now_or_never().is_none());
            assert_eq!(
                polled.load(Ordering::Relaxed),
                polls,
                "a poll ends with the first call that takes a turn"
            );
        }
    }
}
