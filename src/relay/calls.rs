//! The calls of one connection, which run in the connection's task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::task::yield_now;
use tracing::error;

use super::forward::SettledCall;
use super::turn::{InTurn, Turn, TurnStatus};

/// Number of calls above which the client is not read while the turns of its calls are too short. A
/// reset immediately frees room for a new call, so calls that were reset would otherwise pile up.
const MAX_CALLS_BEHIND: usize = 256;

/// Calls in flight. They are not spawned as tasks, because a connection with thousands of calls
/// must not get more turns than a connection with one call.
#[derive(Debug)]
pub(super) struct CallSet {
    calls: FuturesUnordered<InTurn<CallTask>>,
    turn: Turn,
}

/// A call whose panic is caught, so that the other calls continue. The output is `None` after a
/// panic.
struct CallTask(Pin<Box<dyn Future<Output = SettledCall> + Send>>);

impl CallSet {
    pub(super) fn new(turn: Turn) -> Self {
        Self { calls: FuturesUnordered::new(), turn }
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a call, which starts at the next poll.
    pub(super) fn push(&self, call: impl Future<Output = SettledCall> + Send + 'static) {
        self.calls.push(InTurn::new(self.turn.clone(), CallTask(Box::pin(call))));
    }

    /// Polls calls that are ready, until one has settled or the turn is over.
    pub(super) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<SettledCall> {
        while let Poll::Ready(Some(settled)) = self.calls.poll_next_unpin(cx) {
            if let Some(settled) = settled {
                return Poll::Ready(settled);
            }
            error!("a call panicked, please report it");
        }
        Poll::Pending
    }

    /// Returns whether so many calls are in flight that the client should not be read before they
    /// have made progress.
    pub(super) fn are_behind(&self) -> bool {
        self.turn.is_behind() && self.len() > MAX_CALLS_BEHIND
    }

    /// Returns whether calls have made progress since the last call of this function.
    pub(super) fn made_progress(&self) -> bool {
        self.turn.made_progress()
    }

    /// Drops the calls in turns, because the drop of thousands of calls takes long.
    pub(super) async fn abandon(self) {
        for call in self.calls {
            drop(call);
            if matches!(self.turn.status(), TurnStatus::Exhausted(_)) {
                yield_now().await;
            }
        }
    }
}

impl Future for CallTask {
    type Output = Option<SettledCall>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.0.as_mut();
        match catch_unwind(AssertUnwindSafe(|| call.poll(cx))) {
            Ok(polled) => polled.map(Some),
            // The panic hook has logged the panic.
            Err(_) => Poll::Ready(None),
        }
    }
}

impl std::fmt::Debug for CallTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}
