//! Connection slots of a listener. Their number is limited, and a connection that only occupies a
//! slot is evicted for the next one.
//!
//! Some slots are reserved for health and readiness. A connection that finds no other slot takes
//! one of them until its request is known. Any other request then waits for a slot that is not
//! reserved, and is evicted if more connections arrive meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time after which a connection whose request or response is incomplete can be evicted. A
/// readiness check takes up to two seconds.
const MAX_ANSWER: Duration = Duration::from_secs(4);

/// Number of slots that are reserved for health and readiness.
const RESERVED: usize = 16;

/// The slots of one listener.
#[derive(Debug)]
pub(super) struct Slots {
    /// Number of slots that are not reserved.
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
    is_reserved: bool,
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
    /// Creates slots, `limit` of which are not reserved.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, table: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a slot that is not reserved, if one is free or a connection can be evicted from one.
    /// Otherwise takes a reserved slot, and evicts the connection that has had one for longest if
    /// all are taken.
    pub(super) fn take(self: &Arc<Self>) -> ConnectionSlot {
        let now = Instant::now();
        let mut table = self.lock();
        let is_reserved = table.make_room(self.limit, now).is_err();
        if is_reserved && table.count(true) >= RESERVED {
            table.evict_reserved();
        }
        let (id, evicted) = (table.next_id, CancellationToken::new());
        table.next_id += 1;
        let phase = SlotPhase::ReadingHead;
        table.taken.insert(id, SlotHolder { phase, is_reserved, since: now, evicted: evicted.clone() });
        drop(table);
        ConnectionSlot { slots: self.clone(), id, evicted }
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    /// Makes sure that one of the slots that are not reserved is free. If all are taken, evicts the
    /// connection that has waited longest without a complete head. If every connection has sent a
    /// head, evicts the one that has been in the phase `Answering` for longest, once that is
    /// [`MAX_ANSWER`]. The error is the time of the next possible eviction, if there is one.
    fn make_room(&mut self, limit: usize, now: Instant) -> Result<(), Option<Instant>> {
        if self.count(false) < limit {
            return Ok(());
        }
        let id = match (self.longest(SlotPhase::ReadingHead), self.longest(SlotPhase::Answering)) {
            (Some((id, _)), _) => id,
            (None, Some((id, since))) if since + MAX_ANSWER <= now => id,
            (None, answering) => return Err(answering.map(|(_, since)| since + MAX_ANSWER)),
        };
        self.evict(id);
        Ok(())
    }

    /// Evicts the connection that has had a reserved slot for longest.
    fn evict_reserved(&mut self) {
        let reserved = self.taken.iter().filter(|(_, holder)| holder.is_reserved);
        if let Some(id) = reserved.map(|(id, _)| *id).min() {
            self.evict(id);
        }
    }

    fn evict(&mut self, id: u64) {
        if let Some(holder) = self.taken.remove(&id) {
            holder.evicted.cancel();
        }
    }

    fn count(&self, is_reserved: bool) -> usize {
        self.taken.values().filter(|holder| holder.is_reserved == is_reserved).count()
    }

    /// Returns the connection without a reserved slot that has been in a phase for longest, and the
    /// time at which the phase began.
    fn longest(&self, phase: SlotPhase) -> Option<(u64, Instant)> {
        let in_phase = self.taken.iter().filter(|(_, holder)| holder.phase == phase && !holder.is_reserved);
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

    /// Exchanges a reserved slot for another one, and waits until there is one.
    pub(super) async fn leave_reserved(&self) {
        loop {
            let freed = self.slots.freed.notified();
            let next_eviction = match self.try_leave_reserved() {
                Ok(()) => return,
                Err(next_eviction) => next_eviction,
            };
            match next_eviction {
                Some(at) => drop(timeout_at(at, freed).await),
                None => freed.await,
            }
        }
    }

    fn try_leave_reserved(&self) -> Result<(), Option<Instant>> {
        let now = Instant::now();
        let mut table = self.slots.lock();
        if !table.taken.get(&self.id).is_some_and(|holder| holder.is_reserved) {
            return Ok(());
        }
        table.make_room(self.slots.limit, now)?;
        if let Some(holder) = table.taken.get_mut(&self.id) {
            (holder.is_reserved, holder.since) = (false, now);
        }
        Ok(())
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
        self.slots.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        slot.evicted.is_cancelled()
    }

    fn is_reserved(slot: &ConnectionSlot) -> bool {
        slot.slots.lock().taken[&slot.id].is_reserved
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_evicts_the_one_that_waited_longest_for_its_request() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take(), slots.take());
        assert!(!is_evicted(&first) && !is_evicted(&second));
        let third = slots.take();
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&third));
        // An evicted connection frees no slot when it is dropped.
        drop(first);
        second.answering();
        let fourth = slots.take();
        assert!(is_evicted(&third) && !is_evicted(&second) && !is_evicted(&fourth));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_the_slot_of_a_client_that_does_not_read_its_answer_in_time() {
        let slots = Slots::new(1);
        let first = slots.take();
        first.answering();
        let started = Instant::now();
        let second = slots.take();
        assert!(is_reserved(&second));
        second.answering();
        second.leave_reserved().await;
        assert!(is_evicted(&first) && !is_reserved(&second));
        assert!(started.elapsed() >= MAX_ANSWER && started.elapsed() < 2 * MAX_ANSWER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_following_connection_is_never_evicted() {
        let slots = Slots::new(1);
        let first = slots.take();
        first.answering();
        first.following();
        let second = slots.take();
        let waiting = timeout_at(Instant::now() + 10 * MAX_ANSWER, second.leave_reserved()).await;
        assert!(waiting.is_err() && !is_evicted(&first));
        let ((), ()) = tokio::join!(second.leave_reserved(), async { drop(first) });
        assert!(!is_reserved(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_connections_have_the_reserved_slots() {
        let slots = Slots::new(1);
        let busy = slots.take();
        busy.answering();
        let waiting: Vec<ConnectionSlot> = (0..RESERVED).map(|_| slots.take()).collect();
        waiting.iter().for_each(ConnectionSlot::answering);
        assert!(waiting.iter().all(|slot| is_reserved(slot) && !is_evicted(slot)));
        let health = slots.take();
        assert!(is_evicted(&waiting[0]) && !is_evicted(&waiting[1]));
        assert!(is_reserved(&health) && !is_evicted(&busy));
    }
}
