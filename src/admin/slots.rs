//! Connection slots of a listener. Their number is limited, and a connection that only occupies a
//! slot is evicted for the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time after which a connection whose request or response is incomplete can be evicted. A
/// readiness check takes up to two seconds.
const MAX_ANSWER: Duration = Duration::from_secs(4);

/// The slots of one listener.
#[derive(Debug)]
pub(super) struct Slots {
    limit: usize,
    table: Mutex<SlotTable>,
    freed: Notify,
}

/// The slot of one connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<Slots>,
    id: u64,
    evicted: CancellationToken,
}

#[derive(Debug, Default)]
struct SlotTable {
    next_id: u64,
    taken: HashMap<u64, SlotHolder>,
}

/// A connection that holds a slot.
#[derive(Debug)]
struct SlotHolder {
    phase: SlotPhase,
    /// Time at which the phase began.
    since: Instant,
    evicted: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotPhase {
    /// The head of the first request is incomplete.
    ReadingHead,
    /// The connection receives the body of a request, sends the response, or waits for the next
    /// head.
    Answering,
    /// The client follows calls or events, without a time limit. Permits limit the number of these
    /// connections.
    Following,
}

impl Slots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, table: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a slot. If all are taken, evicts the connection that has waited longest without a
    /// complete head. If every connection has sent a head, evicts the one that has been in the
    /// phase `Answering` for longest, once that is [`MAX_ANSWER`]. Otherwise waits for a free slot.
    pub(super) async fn take(self: &Arc<Self>) -> ConnectionSlot {
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

    /// Takes a slot if one is free or can be freed. Otherwise returns the time of the next possible
    /// eviction, if there is one.
    fn try_take(self: &Arc<Self>) -> Result<ConnectionSlot, Option<Instant>> {
        let now = Instant::now();
        let mut table = self.lock();
        if table.taken.len() >= self.limit {
            let id = match (table.longest(SlotPhase::ReadingHead), table.longest(SlotPhase::Answering)) {
                (Some((id, _)), _) => id,
                (None, Some((id, since))) if since + MAX_ANSWER <= now => id,
                (None, answering) => return Err(answering.map(|(_, since)| since + MAX_ANSWER)),
            };
            if let Some(holder) = table.taken.remove(&id) {
                holder.evicted.cancel();
            }
        }
        let (id, evicted) = (table.next_id, CancellationToken::new());
        table.next_id += 1;
        let holder = SlotHolder { phase: SlotPhase::ReadingHead, since: now, evicted: evicted.clone() };
        table.taken.insert(id, holder);
        Ok(ConnectionSlot { slots: self.clone(), id, evicted })
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    /// Returns the connection that has been in a phase for longest, and the time at which the phase
    /// began.
    fn longest(&self, phase: SlotPhase) -> Option<(u64, Instant)> {
        let in_phase = self.taken.iter().filter(|(_, holder)| holder.phase == phase);
        in_phase.map(|(id, holder)| (*id, holder.since)).min_by_key(|(id, since)| (*since, *id))
    }
}

impl ConnectionSlot {
    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Called when the head of a request is complete.
    pub(super) fn answering(&self) {
        self.enter(SlotPhase::Answering);
    }

    /// Called when the client follows calls or events: the connection can no longer be evicted.
    pub(super) fn following(&self) {
        self.enter(SlotPhase::Following);
    }

    fn enter(&self, phase: SlotPhase) {
        if let Some(holder) = self.slots.lock().taken.get_mut(&self.id) {
            (holder.phase, holder.since) = (phase, Instant::now());
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.lock().taken.remove(&self.id);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        slot.evicted.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_evicts_the_one_that_waited_longest_for_its_request() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take().await, slots.take().await);
        assert!(!is_evicted(&first) && !is_evicted(&second));
        let third = slots.take().await;
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&third));
        // An evicted connection frees no slot when it is dropped.
        drop(first);
        second.answering();
        let fourth = slots.take().await;
        assert!(is_evicted(&third) && !is_evicted(&second) && !is_evicted(&fourth));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_evicts_a_client_that_does_not_read_its_answer_in_time() {
        let slots = Slots::new(1);
        let first = slots.take().await;
        first.answering();
        let started = Instant::now();
        let _second = slots.take().await;
        assert!(is_evicted(&first));
        assert!(started.elapsed() >= MAX_ANSWER && started.elapsed() < 2 * MAX_ANSWER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_following_connection_is_never_evicted() {
        let slots = Slots::new(1);
        let first = slots.take().await;
        first.answering();
        first.following();
        let waiting = timeout_at(Instant::now() + 10 * MAX_ANSWER, slots.take()).await;
        assert!(waiting.is_err() && !is_evicted(&first));
        let (_second, ()) = tokio::join!(slots.take(), async { drop(first) });
    }
}
