//! Recorder of events: keeps the most recent events, counts equal events together, and sends later
//! events to followers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tracing::{info, warn};

use super::{Event, EventFilter};
use crate::redact::without_queries;
use crate::terminal::sanitize;

/// Maximum number of events that are kept.
const MAX_EVENTS: usize = 2_000;
/// Maximum number of bytes of the messages together. Some messages contain the output of a command.
const MAX_BYTES: usize = 4 << 20;

/// Number of events that a follower may lag behind.
const FOLLOW_BUFFER: usize = 256;

/// Records events (client-go: `EventRecorder`). The recorder never blocks.
#[derive(Debug)]
pub struct EventRecorder {
    ring: Mutex<EventRing>,
    follow: broadcast::Sender<Arc<Event>>,
    /// Whether query strings are omitted from messages.
    redact: bool,
}

/// Events in the order of their last occurrence.
#[derive(Debug, Default)]
struct EventRing {
    /// Each event with its number. Numbers increase.
    events: VecDeque<(u64, Arc<Event>)>,
    next: u64,
    /// Number after the last event that was removed because of a limit.
    removed: u64,
    /// Number of bytes of all messages together.
    bytes: usize,
    /// Number of the latest event by the hash of its key, for the count of equal events.
    numbers: HashMap<u64, u64>,
}

impl Default for EventRecorder {
    fn default() -> Self {
        Self { ring: Mutex::default(), follow: broadcast::Sender::new(FOLLOW_BUFFER), redact: false }
    }
}

impl EventRecorder {
    /// Creates a recorder without events. `redact` omits query strings from messages.
    #[must_use]
    pub fn new(redact: bool) -> Self {
        Self { redact, ..Self::default() }
    }

    /// Records an event and sends it to the followers. Equal events are counted together.
    pub fn record(&self, mut event: Event) {
        if self.redact {
            event.message = without_queries(&event.message).into_owned();
        }
        let mut ring = self.lock();
        let event = ring.push(event);
        // The event is sent under the lock, so that followers miss none. Sending fails if there are
        // no followers.
        let _ = self.follow.send(event);
    }

    /// Records an event and logs it: a Warning event at level warn, a Normal event at level info.
    pub(crate) fn log_and_record(&self, event: Event) {
        let message = sanitize(&event.message);
        if event.is_warning() {
            warn!("{message}");
        } else {
            info!("{message}");
        }
        self.record(event);
    }

    /// Returns the events that pass a filter, oldest first.
    #[must_use]
    pub fn select(&self, filter: &EventFilter) -> Vec<Arc<Event>> {
        self.lock().select(filter)
    }

    /// Returns the events that have occurred since an earlier call of this function, oldest first,
    /// and a number to be passed to the next call. The first call passes 0.
    #[must_use]
    pub fn after(&self, number: u64) -> (Vec<Arc<Event>>, u64) {
        let ring = self.lock();
        let first = ring.events.partition_point(|(known, _)| *known < number);
        (ring.events.range(first..).map(|(_, event)| event.clone()).collect(), ring.next)
    }

    /// Returns whether events that [`after`](Self::after) would return for a number are no longer
    /// kept.
    #[must_use]
    pub fn has_removed_after(&self, number: u64) -> bool {
        self.lock().removed > number
    }

    /// Returns the events that pass a filter, and a receiver of all later events, unfiltered.
    #[must_use]
    pub fn follow(&self, filter: &EventFilter) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let ring = self.lock();
        (ring.select(filter), self.follow.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, EventRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventRing {
    fn push(&mut self, mut event: Event) -> Arc<Event> {
        let hash = event.event_key();
        let index = self
            .numbers
            .get(&hash)
            .and_then(|number| self.events.binary_search_by_key(number, |(number, _)| *number).ok());
        // If two different events have the same hash, later events are counted only with the newer
        // one.
        if let Some(index) = index.filter(|index| self.events[*index].1.same_key(&event))
            && let Some((_, known)) = self.events.remove(index)
        {
            self.bytes -= known.message.len();
            event.count += known.count;
            event.first_time = known.first_time;
        }
        self.bytes += event.message.len();
        let event = Arc::new(event);
        self.numbers.insert(hash, self.next);
        self.events.push_back((self.next, event.clone()));
        self.next += 1;
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some((number, oldest)) = self.events.pop_front() else { break };
            self.removed = number + 1;
            self.bytes -= oldest.message.len();
            let hash = oldest.event_key();
            if self.numbers.get(&hash) == Some(&number) {
                self.numbers.remove(&hash);
            }
        }
        event
    }

    fn select(&self, filter: &EventFilter) -> Vec<Arc<Event>> {
        let events = self.events.iter().map(|(_, event)| event);
        events.filter(|event| filter.lets_through(event)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::events::reason;

    fn event(seconds: u64, message: &str) -> Event {
        Event {
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            ..Event::warning(reason::EXEC_SYNC_OVERDUE, message)
        }
    }

    #[test]
    fn equal_events_are_counted_together_and_move_to_the_end() {
        let events = EventRecorder::default();
        for (seconds, message) in [(1, "a"), (2, "b"), (3, "a")] {
            events.record(event(seconds, message));
        }
        let selected = events.select(&EventFilter::default());
        let shown: Vec<_> = selected.iter().map(|event| (event.message.as_str(), event.count)).collect();
        assert_eq!(shown, [("b", 1), ("a", 2)]);
        let since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(3));
        assert_eq!(events.select(&EventFilter { since, ..EventFilter::default() }).len(), 1);
    }

    #[test]
    fn events_that_differ_only_in_ids_are_counted_together_and_the_last_message_is_kept() {
        let events = EventRecorder::default();
        let messages = ["a".repeat(64), "b".repeat(64)].map(|id| format!("exec \"{id}\" failed"));
        events.record(event(1, &messages[0]));
        events.record(event(2, &messages[1]));
        events.record(event(3, "exec \"c\" failed"));
        let selected = events.select(&EventFilter::default());
        let shown: Vec<_> = selected.iter().map(|event| (event.message.as_str(), event.count)).collect();
        assert_eq!(shown, [(messages[1].as_str(), 2), ("exec \"c\" failed", 1)]);
        assert_eq!(events.lock().bytes, messages[1].len() + "exec \"c\" failed".len());
    }

    #[test]
    fn followers_see_later_events_and_old_events_are_dropped() {
        let events = EventRecorder::default();
        events.record(event(1, "a"));
        let (before, mut coming) = events.follow(&EventFilter::default());
        events.record(event(2, "b"));
        assert_eq!((before.len(), coming.try_recv().unwrap().message.as_str()), (1, "b"));
        for count in 0..=MAX_EVENTS as u64 {
            events.record(event(3, &count.to_string()));
        }
        let selected = events.select(&EventFilter::default());
        assert_eq!((selected.len(), events.lock().numbers.len()), (MAX_EVENTS, MAX_EVENTS));
        events.record(event(4, &selected[0].message));
        let selected = events.select(&EventFilter::default());
        assert_eq!(
            (selected.len(), selected[MAX_EVENTS - 1].count),
            (MAX_EVENTS, 2),
            "however long ago it was"
        );
        for count in 0..5 {
            events.record(event(5, &count.to_string().repeat(MAX_BYTES / 4)));
        }
        let ring = events.lock();
        assert_eq!((ring.events.len(), ring.bytes, ring.numbers.len()), (4, MAX_BYTES, 4));
    }
}
