//! The events of stuck execs.

use std::time::Duration;

use super::{StuckExec, StuckKind};
use crate::events::{Event, reason};
use crate::terminal::format;

impl StuckExec {
    /// Returns the event of an exec that has been stuck for `age`.
    #[must_use]
    pub fn event(&self, age: Duration) -> Event {
        let reason = match self.kind {
            StuckKind::Overdue => reason::EXEC_SYNC_OVERDUE,
            StuckKind::Unanswered => reason::EXEC_SYNC_UNANSWERED,
            StuckKind::Leaked => reason::EXEC_PROCESS_LEAKED,
        };
        self.with_refs(Event::warning(reason, self.sentence(age)))
    }

    /// Returns the event of an exec that was stuck for `age` and is not stuck any more.
    #[must_use]
    pub fn resolved_event(&self, age: Duration) -> Event {
        let (reason, verb) = match self.kind {
            StuckKind::Overdue => (reason::EXEC_SYNC_ENDED, "ended"),
            StuckKind::Unanswered => (reason::EXEC_SYNC_ANSWERED, "was answered"),
            StuckKind::Leaked => (reason::EXEC_PROCESS_EXITED, "exited"),
        };
        let subject = match (self.kind, self.pid) {
            (StuckKind::Leaked, Some(pid)) => format!("Process {pid} of call {}", self.call),
            _ => format!("Call {}", self.call),
        };
        let age = format::duration(age);
        self.with_refs(Event::normal(reason, format!("{subject} {verb} after {age}")))
    }

    /// Describes the problem in a sentence, `age` after it began.
    #[must_use]
    pub fn sentence(&self, age: Duration) -> String {
        let (call, age) = (self.call, format::duration(age));
        let command = format::command(&self.command);
        let pid = self.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        match self.kind {
            StuckKind::Overdue => {
                format!("Call {call} has not been answered, {age} after its timeout was over: {command}")
            }
            StuckKind::Unanswered => {
                format!("Call {call} has not been answered, {age} after its command exited{pid}: {command}")
            }
            StuckKind::Leaked => {
                format!("A process{pid} still runs {age} after call {call} ended: {command}")
            }
        }
    }

    fn with_refs(&self, event: Event) -> Event {
        Event { pod: self.pod.clone(), container: self.container.clone(), ..event }
    }
}
