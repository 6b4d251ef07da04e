//! What containerd tells of one executed command, from the moment at which it is added to its exit.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::containerd::TaskEvent;

/// How far apart two clocks of one machine may seem, because one of the two is read a moment later.
const SKEW: Duration = Duration::from_millis(5);

/// A moment as containerd's shim saw it, and when it was heard of here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: SystemTime,
    pub(super) heard: Instant,
}

/// A command that was executed, as far as events tell of it.
#[derive(Clone, Debug)]
pub(super) struct Life {
    /// What containerd calls it.
    pub(super) exec: Box<str>,
    pub(super) added: Option<Moment>,
    pub(super) started: Option<Moment>,
    pub(super) exited: Option<Moment>,
    /// Its process, once it has started.
    pub(super) pid: Option<u32>,
    /// Its exit code, once it has exited; 128 and the signal where one ended it.
    pub(super) status: Option<u32>,
    /// Its words, where they could be read while it ran.
    pub(super) command: Option<Vec<String>>,
}

/// When a call began, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) start: SystemTime,
    pub(super) since: Instant,
}

impl Life {
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
    pub(super) fn take(&mut self, event: &TaskEvent, moment: Moment) {
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
            TaskEvent::Started { .. } | TaskEvent::Exited { .. } | TaskEvent::OutOfMemory { .. } => {}
        }
    }

    /// The first that was heard of it.
    pub(super) fn first(&self) -> Option<Moment> {
        self.added.or(self.started).or(self.exited)
    }

    /// Whether the CRI plugin may have executed it: its ids are 64 hexadecimal digits, those that people give are not.
    pub(super) fn may_be_of_the_cri(&self) -> bool {
        self.exec.len() == 64 && self.exec.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl Moment {
    /// How long after the beginning of a call it was. Nothing happens after it was heard of, or before the call: where the wall clock
    /// says so, it was set meanwhile, or is not ours, and the time at which it was heard of counts.
    pub(super) fn after(self, call: Beginning) -> Duration {
        let heard = self.heard.saturating_duration_since(call.since);
        match self.at.duration_since(call.start) {
            Ok(after) if after <= heard + SKEW => after,
            Err(before) if before.duration() <= SKEW => Duration::ZERO,
            Ok(_) | Err(_) => heard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_wall_clock_cannot_have_seen_is_timed_by_when_it_was_heard_of() {
        let call =
            Beginning { start: SystemTime::UNIX_EPOCH + Duration::from_secs(1000), since: Instant::now() };
        let ms = Duration::from_millis;
        for (at, heard, expected) in [
            (1_000_030, 31, 30),
            (1_000_030, 900, 30),
            (999_998, 3, 0),
            // The clock was set by an hour, forwards or backwards.
            (4_600_030, 31, 31),
            (2_600, 31, 31),
        ] {
            let at = SystemTime::UNIX_EPOCH + ms(at);
            let moment = Moment { at, heard: call.since + ms(heard) };
            assert_eq!(moment.after(call), ms(expected), "{at:?}");
        }
    }
}
