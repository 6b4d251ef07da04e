//! Selects the events to be written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::events::{Event, EventRecorder, reason};

/// Interval at which an event that occurs again is written again, so that a probe that keeps
/// failing leaves room for results.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);

/// Maximum number of events that are written each time.
const MAX_EVENTS: usize = 256;

/// Events that are not written yet.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLog {
    /// Number after the last event that was received.
    next: u64,
    /// Events to be written, by their keys.
    pending: HashMap<u64, Arc<Event>>,
    /// Time at which events were last written, by their keys.
    written: HashMap<u64, Instant>,
}

impl EventLog {
    /// Returns the events to be written now: new ones, starts, exits and kills of containers, and
    /// after an interval others that have occurred again. `all` returns the latter at once.
    pub(super) fn take(&mut self, events: &EventRecorder, now: Instant, all: bool) -> Vec<Arc<Event>> {
        let (new, next) = events.after(self.next);
        self.next = next;
        self.pending.extend(new.into_iter().map(|event| (event.event_key(), event)));
        self.written.retain(|_, time| now.saturating_duration_since(*time) < REPEAT_INTERVAL);
        let is_due = |key: &u64, event: &Event| {
            all || reason::LIFECYCLE.contains(&event.reason) || !self.written.contains_key(key)
        };
        let mut due: Vec<(u64, Arc<Event>)> = self
            .pending
            .iter()
            .filter(|(key, event)| is_due(key, event))
            .map(|(key, event)| (*key, event.clone()))
            .collect();
        due.sort_by_key(|(key, event)| (event.time, *key));
        due.truncate(MAX_EVENTS);
        for (key, _) in &due {
            self.pending.remove(key);
            self.written.insert(*key, now);
        }
        due.into_iter().map(|(_, event)| event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_at_once_and_then_once_per_interval() {
        let (events, mut log, start) = (EventRecorder::default(), EventLog::default(), Instant::now());
        let counts = |events: Vec<Arc<Event>>| events.iter().map(|event| event.count).collect::<Vec<u64>>();
        let record = || events.record(Event::warning(reason::UNHEALTHY, "bad"));
        record();
        assert_eq!(counts(log.take(&events, start, false)), [1]);
        record();
        record();
        let minute = start + Duration::from_secs(60);
        assert_eq!(counts(log.take(&events, minute, false)), Vec::<u64>::new());
        assert_eq!(counts(log.take(&events, start + REPEAT_INTERVAL, false)), [3]);
        record();
        assert_eq!(counts(log.take(&events, start + REPEAT_INTERVAL, true)), [4]);
        assert_eq!(counts(log.take(&events, start + REPEAT_INTERVAL, true)), Vec::<u64>::new());
    }

    #[test]
    fn each_restart_of_a_container_is_written_with_its_minute() {
        let (events, mut log, start) = (EventRecorder::default(), EventLog::default(), Instant::now());
        for minute in 0..3 {
            events.record(Event::normal(reason::STARTED, "Container started"));
            let now = start + Duration::from_secs(60 * minute);
            assert_eq!(log.take(&events, now, false)[0].count, minute + 1);
        }
    }
}
