//! Connection slots of a listener: their number is limited, and a client that only occupies one gives way to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long an answer may go on before its connection gives way to others, where connections are for one request. Readiness takes two
/// seconds.
const MAX_ANSWER: Duration = Duration::from_secs(4);

/// The slots of one listener.
#[derive(Debug)]
pub(super) struct Slots {
    limit: usize,
    /// Whether a connection is for one request only.
    one_request: bool,
    state: Mutex<State>,
    freed: Notify,
}

/// A slot that one connection has; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
    evicted: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    taken: HashMap<u64, Connection>,
}

/// A connection that holds a slot.
#[derive(Debug)]
struct Connection {
    phase: Phase,
    /// Since when it is in this phase.
    since: Instant,
    evicted: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head of the first request is not complete.
    ReadingHead,
    /// A request is being answered, or the head of the next is awaited.
    Answering,
}

impl Slots {
    pub(super) fn new(limit: usize, one_request: bool) -> Arc<Self> {
        Arc::new(Self { limit, one_request, state: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a slot. Where all are taken, the connection that has waited longest without a complete head loses its own; if every connection is
    /// being answered, one that has been so for too long; else this waits.
    pub(super) async fn take(self: &Arc<Self>) -> Slot {
        loop {
            let freed = self.freed.notified();
            let next_eviction = match self.try_take() {
                Ok(slot) => return slot,
                Err(next_eviction) => next_eviction,
            };
            match next_eviction {
                Some(at) => drop(timeout_at(at, freed).await),
                None => freed.await,
            }
        }
    }

    /// Takes a slot if there is one, or tells when the next can be had at the latest.
    fn try_take(self: &Arc<Self>) -> Result<Slot, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.lock();
        if state.taken.len() >= self.limit {
            let id = state.longest(Phase::ReadingHead).map(|(id, _)| id);
            let id = match (id, state.longest(Phase::Answering)) {
                (Some(id), _) => id,
                (None, Some((id, since))) if self.one_request && since + MAX_ANSWER <= now => id,
                (None, Some((_, since))) => return Err(self.one_request.then_some(since + MAX_ANSWER)),
                (None, None) => return Err(None),
            };
            if let Some(connection) = state.taken.remove(&id) {
                connection.evicted.cancel();
            }
        }
        let (id, evicted) = (state.next_id, CancellationToken::new());
        state.next_id += 1;
        let connection = Connection { phase: Phase::ReadingHead, since: now, evicted: evicted.clone() };
        state.taken.insert(id, connection);
        Ok(Slot { slots: self.clone(), id, evicted })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The connection that has been in a phase for longest, and since when.
    fn longest(&self, phase: Phase) -> Option<(u64, Instant)> {
        let in_phase = self.taken.iter().filter(|(_, connection)| connection.phase == phase);
        in_phase.map(|(id, connection)| (*id, connection.since)).min_by_key(|(id, since)| (*since, *id))
    }
}

impl Slot {
    /// Ends when the connection has to give way.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Called when the head of a request is complete.
    pub(super) fn answering(&self) {
        let mut state = self.slots.lock();
        if let Some(connection) = state.taken.get_mut(&self.id) {
            (connection.phase, connection.since) = (Phase::Answering, Instant::now());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().taken.remove(&self.id);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(slot: &Slot) -> bool {
        slot.evicted.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_has_waited_longest_for_a_head_gives_way() {
        let slots = Slots::new(2, true);
        let (first, second) = (slots.take().await, slots.take().await);
        assert!(!is_evicted(&first) && !is_evicted(&second));
        let third = slots.take().await;
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&third));
        // What is evicted has no slot to give back.
        drop(first);
        second.answering();
        let fourth = slots.take().await;
        assert!(is_evicted(&third) && !is_evicted(&second) && !is_evicted(&fourth));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_gives_way_after_a_while() {
        let slots = Slots::new(1, true);
        let first = slots.take().await;
        first.answering();
        let begun = Instant::now();
        let _second = slots.take().await;
        assert!(is_evicted(&first));
        assert!(begun.elapsed() >= MAX_ANSWER && begun.elapsed() < 2 * MAX_ANSWER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_whose_connection_may_go_on_is_waited_for() {
        let slots = Slots::new(1, false);
        let first = slots.take().await;
        first.answering();
        let waiting = timeout_at(Instant::now() + 10 * MAX_ANSWER, slots.take()).await;
        assert!(waiting.is_err() && !is_evicted(&first));
        let (_second, ()) = tokio::join!(slots.take(), async { drop(first) });
    }
}
