//! What has happened, in a sentence each: the last of it, and what comes.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::broadcast;

use crate::probe::without_queries;
use crate::tap::{ContainerRef, PodRef};

/// Events that are kept, and bytes of their messages: some have what a command wrote in them.
const MAX_EVENTS: usize = 2_000;
const MAX_BYTES: usize = 4 << 20;

/// Events that a slow follower may lag behind.
const FOLLOW_BUFFER: usize = 256;

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When; of one that happened again, when it did last.
    pub time: SystemTime,
    /// Severity.
    pub severity: EventType,
    /// One word for it, in CamelCase.
    pub reason: &'static str,
    /// The pod that it happened to, if to one.
    pub pod: Option<Arc<PodRef>>,
    /// The container that it happened to, if to one.
    pub container: Option<Arc<ContainerRef>>,
    /// A sentence for it.
    pub message: String,
    /// How often it has happened.
    pub count: u64,
}

/// Severity of an event, as Kubernetes names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// It happens.
    Normal,
    /// It should not happen.
    Warning,
}

/// Which events to show.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Those that happened at this time or later.
    pub since: Option<SystemTime>,
}

/// The events that happened last.
#[derive(Debug)]
pub struct EventHistory {
    ring: Mutex<EventRing>,
    follow: broadcast::Sender<Arc<Event>>,
    /// Whether query strings are left out of messages.
    redact: bool,
}

/// Events in the order in which they happened last.
#[derive(Debug, Default)]
struct EventRing {
    /// Each with its number, which grows.
    events: VecDeque<(u64, Arc<Event>)>,
    next: u64,
    /// Of all messages together.
    bytes: usize,
    /// The numbers of those that may happen again, by the hash of what they are.
    numbers: HashMap<u64, u64>,
}

impl Default for EventHistory {
    fn default() -> Self {
        Self { ring: Mutex::default(), follow: broadcast::Sender::new(FOLLOW_BUFFER), redact: false }
    }
}

impl EventHistory {
    /// No events yet. `redact` leaves query strings out of their messages.
    #[must_use]
    pub fn new(redact: bool) -> Self {
        Self { redact, ..Self::default() }
    }

    /// Keeps an event, and shows it to those who follow. One that is the same as one that is kept is counted with it.
    pub fn push(&self, mut event: Event) {
        if self.redact {
            event.message = without_queries(&event.message).into_owned();
        }
        let mut ring = self.lock();
        let event = ring.push(event);
        // Under the lock, and where nobody follows in vain: as with calls.
        let _ = self.follow.send(event);
    }

    /// The events that a filter lets through, in their order.
    #[must_use]
    pub fn select(&self, filter: &EventFilter) -> Vec<Arc<Event>> {
        self.lock().select(filter)
    }

    /// The same, and a receiver of all later events, unfiltered.
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
        // Of two that have the same hash and are not the same, the later one is counted with from now on.
        if let Some(index) = index.filter(|index| self.events[*index].1.same_key(&event)) {
            self.bytes -= event.message.len();
            event.count += self.events.remove(index).map_or(0, |(_, known)| known.count);
        }
        self.bytes += event.message.len();
        let event = Arc::new(event);
        self.numbers.insert(hash, self.next);
        self.events.push_back((self.next, event.clone()));
        self.next += 1;
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some((number, oldest)) = self.events.pop_front() else { break };
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

impl EventFilter {
    /// Whether an event is one of those to show.
    #[must_use]
    pub fn lets_through(&self, event: &Event) -> bool {
        self.since.is_none_or(|since| event.time >= since)
    }
}

impl Event {
    /// Of everything that makes it the same as another.
    fn event_key(&self) -> u64 {
        let Self { time: _, count: _, severity, reason, pod, container, message } = self;
        let mut hasher = DefaultHasher::new();
        (*severity as u8, reason, pod, container, message).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the severity is Warning.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.severity == EventType::Warning
    }

    fn same_key(&self, other: &Self) -> bool {
        let Self { time: _, count: _, severity, reason, pod, container, message } = self;
        (*severity, *reason, pod, container, message)
            == (other.severity, other.reason, &other.pod, &other.container, &other.message)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn event(seconds: u64, message: &str) -> Event {
        Event {
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            severity: EventType::Warning,
            reason: "ExecSyncOverdue",
            pod: None,
            container: None,
            message: message.to_owned(),
            count: 1,
        }
    }

    #[test]
    fn what_happens_again_is_counted_and_comes_last() {
        let events = EventHistory::default();
        for (seconds, message) in [(1, "a"), (2, "b"), (3, "a")] {
            events.push(event(seconds, message));
        }
        let selected = events.select(&EventFilter::default());
        let shown: Vec<_> = selected.iter().map(|event| (event.message.as_str(), event.count)).collect();
        assert_eq!(shown, [("b", 1), ("a", 2)]);
        let since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(3));
        assert_eq!(events.select(&EventFilter { since }).len(), 1);
    }

    #[test]
    fn who_follows_sees_what_comes() {
        let events = EventHistory::default();
        events.push(event(1, "a"));
        let (before, mut coming) = events.follow(&EventFilter::default());
        events.push(event(2, "b"));
        assert_eq!((before.len(), coming.try_recv().unwrap().message.as_str()), (1, "b"));
        for count in 0..=MAX_EVENTS as u64 {
            events.push(event(3, &count.to_string()));
        }
        let selected = events.select(&EventFilter::default());
        assert_eq!((selected.len(), events.lock().numbers.len()), (MAX_EVENTS, MAX_EVENTS));
        events.push(event(4, &selected[0].message));
        let selected = events.select(&EventFilter::default());
        assert_eq!(
            (selected.len(), selected[MAX_EVENTS - 1].count),
            (MAX_EVENTS, 2),
            "however long ago it was"
        );
        for count in 0..5 {
            events.push(event(5, &count.to_string().repeat(MAX_BYTES / 4)));
        }
        let ring = events.lock();
        assert_eq!((ring.events.len(), ring.bytes, ring.numbers.len()), (4, MAX_BYTES, 4));
    }
}
