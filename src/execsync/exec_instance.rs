//! Exec instances: executions of commands, as containerd's events describe them.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::containerd::TaskEvent;

/// Tolerance for the comparison of two clocks of one machine, since one of them is read a moment
/// after the other.
pub(super) const SKEW: Duration = Duration::from_millis(5);

/// Maximum age of an event. containerd's shim tries to publish an event for less than 30 seconds. A
/// time that seems older comes from another clock.
const MAX_EVENT_AGE: Duration = Duration::from_secs(60);

/// A reading of both clocks at the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    pub(super) instant: Instant,
    pub(super) wall: SystemTime,
}

/// Time of an event on the monotonic clock, and time at which the event was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventTime {
    pub(super) at: Instant,
    pub(super) received_at: Instant,
}

/// Execution of a command, as far as events describe it.
#[derive(Clone, Debug)]
pub(super) struct ExecInstance {
    /// The exec id in containerd's events.
    pub(super) exec: Box<str>,
    /// Whether the CRI plugin may have executed the command. The plugin's exec ids have 64
    /// hexadecimal digits; exec ids that people choose do not.
    pub(super) has_cri_exec_id: bool,
    pub(super) added: Option<EventTime>,
    pub(super) started: Option<EventTime>,
    pub(super) exited: Option<EventTime>,
    /// The pid of the command, once it has started.
    pub(super) pid: Option<u32>,
    /// The exit code of the command, once it has exited; 128 plus the signal's number if a signal
    /// ended it.
    pub(super) status: Option<u32>,
    /// The command line, if the sampler could read it while the process ran.
    pub(super) command: Option<Vec<String>>,
}

impl ExecInstance {
    pub(super) fn new(exec: &str) -> Self {
        Self {
            exec: exec.into(),
            has_cri_exec_id: exec.len() == 64 && exec.bytes().all(|byte| byte.is_ascii_hexdigit()),
            added: None,
            started: None,
            exited: None,
            pid: None,
            status: None,
            command: None,
        }
    }

    /// Applies an event about this exec instance.
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
                // The pid is 0 if the command could not be started.
                self.pid = self.pid.or(Some(*pid).filter(|pid| *pid != 0));
            }
            TaskEvent::Started { .. } | TaskEvent::Exit { .. } | TaskEvent::OutOfMemory { .. } => {}
        }
    }

    /// Returns the time of the earliest known event.
    pub(super) fn first_event(&self) -> Option<EventTime> {
        self.added.or(self.started).or(self.exited)
    }
}

impl ClockReading {
    /// Pairs an instant with the current time of the wall clock.
    pub(super) fn new(instant: Instant) -> Self {
        Self { instant, wall: SystemTime::now() }
    }
}

impl EventTime {
    /// Converts the wall-clock time of an event that is received now. The two clocks are compared
    /// only here, so that a step of the wall clock during a call changes nothing. A time in the
    /// future or more than 60 seconds ago comes from another machine's clock, or the clock has just
    /// been set. Then the time of receipt is used.
    pub(super) fn new(at: SystemTime, now: ClockReading) -> Self {
        let received_at = now.instant;
        let age = now.wall.duration_since(at).ok().filter(|age| *age <= MAX_EVENT_AGE);
        Self { at: age.and_then(|age| received_at.checked_sub(age)).unwrap_or(received_at), received_at }
    }

    /// Returns the time since `other`; zero if the event was before `other`.
    pub(super) fn after(self, other: Instant) -> Duration {
        self.at.saturating_duration_since(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_an_implausible_timestamp_is_dated_by_its_arrival() {
        let call = Instant::now() + Duration::from_secs(1000);
        let ms = Duration::from_millis;
        let now = ClockReading { instant: call + ms(40), wall: SystemTime::UNIX_EPOCH + ms(1_000_040) };
        for (at, expected) in [
            (1_000_030, 30),
            (1_000_040, 40),
            (999_990, 0),
            // The clock was set forwards or backwards, or belongs to another machine.
            (4_600_030, 40),
            (2_600, 40),
        ] {
            let moment = EventTime::new(SystemTime::UNIX_EPOCH + ms(at), now);
            assert_eq!(moment.after(call), ms(expected), "{at}");
        }
    }
}
