//! Connection slots of a listener: their number is limited, and a client that only occupies one gives way to
//! the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time after which a request or its answer that still goes on gives way to other connections. Readiness
/// takes two seconds.
const MAX_ANSWER: Duration = Duration::from_secs(4);

/// The slots of one listener.
#[derive(Debug)]
pub(super) struct Slots {
    limit: usize,
    table: Mutex<SlotTable>,
    freed: Notify,
}

/// A slot that one connection has; it is free again when this is dropped.
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
    /// Since when it is in this phase.
    since: Instant,
    evicted: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotPhase {
    /// The head of the first request is not complete.
    ReadingHead,
    /// The body of a request is awaited, the request is being answered, or the head of the next is awaited.
    Answering,
    /// Calls or events are followed, for as long as the client likes. Permits limit how many connections do.
    Following,
}

impl Slots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, table: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a slot. Where all are taken, the connection that has waited longest without a complete head
    /// loses its own. If every connection has sent a head, one that has been answered for too long loses its
    /// own. Else this waits.
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

    /// Takes a slot if there is one, or tells when the next can be had at the latest.
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
    /// The connection that has been in a phase for longest, and since when.
    fn longest(&self, phase: SlotPhase) -> Option<(u64, Instant)> {
        let in_phase = self.taken.iter().filter(|(_, holder)| holder.phase == phase);
        in_phase.map(|(id, holder)| (*id, holder.since)).min_by_key(|(id, since)| (*since, *id))
    }
}

impl ConnectionSlot {
    /// Ends when the connection has to give way.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Called when the head of a request is complete.
    pub(super) fn answering(&self) {
        self.enter(SlotPhase::Answering);
    }

    /// Called when calls or events are followed: the connection no longer gives way to others.
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
    async fn the_connection_that_has_waited_longest_for_a_head_gives_way() {
        let slots = Slots::new(2);
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
        let slots = Slots::new(1);
        let first = slots.take().await;
        first.answering();
        let started = Instant::now();
        let _second = slots.take().await;
        assert!(is_evicted(&first));
        assert!(started.elapsed() >= MAX_ANSWER && started.elapsed() < 2 * MAX_ANSWER);
    }

    #[tokio::test(start_paused = true)]
    async fn the_slot_of_a_connection_that_follows_is_waited_for() {
        let slots = Slots::new(1);
        let first = slots.take().await;
        first.answering();
        first.following();
        let waiting = timeout_at(Instant::now() + 10 * MAX_ANSWER, slots.take()).await;
        assert!(waiting.is_err() && !is_evicted(&first));
        let (_second, ()) = tokio::join!(slots.take(), async { drop(first) });
    }
}
