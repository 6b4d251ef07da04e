//! What has happened, in a sentence each: the last of it, and what comes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::broadcast;

use crate::tap::{Container, Pod};

/// Events that are kept.
const KEPT: usize = 2_000;

/// Events that a slow follower may lag behind.
const LAG: usize = 256;

/// Events among which one that is the same again is looked for.
const RECENT: usize = 100;

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When; of one that happened again, when it did last.
    pub time: SystemTime,
    /// Whether somebody should look.
    pub severity: Severity,
    /// One word for it, in CamelCase.
    pub reason: &'static str,
    /// The pod that it happened to, if to one.
    pub pod: Option<Arc<Pod>>,
    /// The container that it happened to, if to one.
    pub container: Option<Arc<Container>>,
    /// A sentence for it.
    pub message: String,
    /// How often it has happened.
    pub count: u64,
}

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
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
pub struct Events {
    kept: Mutex<VecDeque<Arc<Event>>>,
    follow: broadcast::Sender<Arc<Event>>,
}

impl Default for Events {
    fn default() -> Self {
        Self { kept: Mutex::default(), follow: broadcast::Sender::new(LAG) }
    }
}

impl Events {
    /// Keeps an event, and shows it to those who follow. One that is the same as one of the last hundred is counted with it.
    pub fn push(&self, mut event: Event) {
        let mut kept = self.lock();
        let last = kept.len().saturating_sub(RECENT);
        if let Some(same) = kept.range(last..).position(|known| known.is_same_as(&event)) {
            event.count += kept.remove(last + same).map_or(0, |known| known.count);
        }
        let event = Arc::new(event);
        kept.push_back(event.clone());
        if kept.len() > KEPT {
            kept.pop_front();
        }
        // Under the lock, and where nobody follows in vain: as with calls.
        let _ = self.follow.send(event);
    }

    /// The events that a filter lets through, in their order.
    #[must_use]
    pub fn select(&self, filter: &EventFilter) -> Vec<Arc<Event>> {
        self.lock().iter().filter(|event| filter.lets_through(event)).cloned().collect()
    }

    /// The same, and a receiver of all later events, unfiltered.
    #[must_use]
    pub fn follow(&self, filter: &EventFilter) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let kept = self.lock();
        let events = kept.iter().filter(|event| filter.lets_through(event)).cloned().collect();
        (events, self.follow.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Event>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn is_same_as(&self, other: &Self) -> bool {
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
            severity: Severity::Warning,
            reason: "ExecSyncOverdue",
            pod: None,
            container: None,
            message: message.to_owned(),
            count: 1,
        }
    }

    #[test]
    fn what_happens_again_is_counted_and_comes_last() {
        let events = Events::default();
        for (seconds, message) in [(1, "a"), (2, "b"), (3, "a")] {
            events.push(event(seconds, message));
        }
        let kept = events.select(&EventFilter::default());
        let shown: Vec<_> = kept.iter().map(|event| (event.message.as_str(), event.count)).collect();
        assert_eq!(shown, [("b", 1), ("a", 2)]);
        let since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(3));
        assert_eq!(events.select(&EventFilter { since }).len(), 1);
    }

    #[test]
    fn who_follows_sees_what_comes() {
        let events = Events::default();
        events.push(event(1, "a"));
        let (before, mut coming) = events.follow(&EventFilter::default());
        events.push(event(2, "b"));
        assert_eq!((before.len(), coming.try_recv().unwrap().message.as_str()), (1, "b"));
        for count in 0..=KEPT as u64 {
            events.push(event(3, &count.to_string()));
        }
        assert_eq!(events.select(&EventFilter::default()).len(), KEPT);
    }
}
