//! What containerd tells of one executed command, from the moment at which it is added to its exit.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::containerd::TaskEvent;

/// How far apart two clocks of one machine may seem, because one of the two is read a moment later.
pub(super) const SKEW: Duration = Duration::from_millis(5);

/// How late an event may be: containerd's shim tries for less than half a minute to publish it. What seems older is timed by another clock.
const MAX_EVENT_AGE: Duration = Duration::from_secs(60);

/// A time by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    pub(super) instant: Instant,
    pub(super) wall: SystemTime,
}

/// When something happened, by our own clock, and when it was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventTime {
    pub(super) at: Instant,
    pub(super) received_at: Instant,
}

/// A command that was executed, as far as events tell of it.
#[derive(Clone, Debug)]
pub(super) struct ExecInstance {
    /// What containerd calls it.
    pub(super) exec: Box<str>,
    pub(super) added: Option<EventTime>,
    pub(super) started: Option<EventTime>,
    pub(super) exited: Option<EventTime>,
    /// Its process, once it has started.
    pub(super) pid: Option<u32>,
    /// Its exit code, once it has exited; 128 and the signal where one ended it.
    pub(super) status: Option<u32>,
    /// Its words, where they could be read while it ran.
    pub(super) command: Option<Vec<String>>,
}

impl ExecInstance {
    pub(super) fn new(exec: &str) -> Self {
        Self {
            exec: exec.into(),
            added: None,
            started: None,
            exited: None,
            pid: None,
            status: None,
            command: None,
        }
    }

    /// Takes an event about it.
    pub(super) fn apply(&mut self, event: &TaskEvent, moment: EventTime) {
        match event {
            TaskEvent::ExecAdded { .. } => self.added = Some(moment),
            TaskEvent::ExecStarted { pid, .. } => {
                self.started = Some(moment);
                self.pid = Some(*pid);
            }
            TaskEvent::ExecExited { pid, status, .. } => {
                self.exited = Some(moment);
                self.status = Some(*status);
                // A command that could not be started never had one.
                self.pid = self.pid.or(Some(*pid).filter(|pid| *pid != 0));
            }
            TaskEvent::Started { .. } | TaskEvent::Exit { .. } | TaskEvent::OutOfMemory { .. } => {}
        }
    }

    /// The first that was heard of it.
    pub(super) fn first_event(&self) -> Option<EventTime> {
        self.added.or(self.started).or(self.exited)
    }

    /// Whether the CRI plugin may have executed it: its ids are 64 hexadecimal digits, those that people give are not.
    pub(super) fn has_cri_exec_id(&self) -> bool {
        self.exec.len() == 64 && self.exec.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl ClockReading {
    /// The time as it is.
    pub(super) fn new(instant: Instant) -> Self {
        Self { instant, wall: SystemTime::now() }
    }
}

impl EventTime {
    /// What happened at a time of the wall clock, and is heard of now. The two clocks are compared here and nowhere else, so that a step of
    /// the wall clock while a call lasts changes nothing. What cannot be so, because it would lie in the future or far back, was timed by a
    /// clock that is not ours, or that has been set in this very moment: then it is when it was heard of.
    pub(super) fn new(at: SystemTime, now: ClockReading) -> Self {
        let received_at = now.instant;
        let age = now.wall.duration_since(at).ok().filter(|age| *age <= MAX_EVENT_AGE);
        Self { at: age.and_then(|age| received_at.checked_sub(age)).unwrap_or(received_at), received_at }
    }

    /// How long after something else it happened; nothing, if before.
    pub(super) fn after(self, other: Instant) -> Duration {
        self.at.saturating_duration_since(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_wall_clock_cannot_have_seen_is_timed_by_when_it_was_heard_of() {
        let call = Instant::now() + Duration::from_secs(1000);
        let ms = Duration::from_millis;
        let now = ClockReading { instant: call + ms(40), wall: SystemTime::UNIX_EPOCH + ms(1_000_040) };
        for (at, expected) in [
            (1_000_030, 30),
            (1_000_040, 40),
            (999_990, 0),
            // The clock was set by an hour, forwards or backwards, or is another's.
            (4_600_030, 40),
            (2_600, 40),
        ] {
            let moment = EventTime::new(SystemTime::UNIX_EPOCH + ms(at), now);
            assert_eq!(moment.after(call), ms(expected), "{at}");
        }
    }
}
