//! The events of stuck execs.

use std::time::Duration;

use super::evidence::DEFUNCT;
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
            StuckKind::TimedOut => reason::EXEC_SYNC_TIMED_OUT,
            StuckKind::Leaked => reason::EXEC_PROCESS_LEAKED,
        };
        self.with_refs(Event::warning(reason, self.sentence(age)))
    }

    /// Returns the event of an exec that was stuck for `age` and is not stuck any more.
    #[must_use]
    pub fn resolved_event(&self, age: Duration) -> Event {
        let (call, age) = (self.call, format::duration(age));
        let (reason, sentence) = match (self.kind, self.pid) {
            (StuckKind::Overdue, _) => {
                (reason::EXEC_SYNC_ENDED, format!("Call {call} ended {age} after its timeout was over"))
            }
            (StuckKind::Unanswered, _) => (
                reason::EXEC_SYNC_ANSWERED,
                format!("Call {call} was answered {age} after its command exited"),
            ),
            (StuckKind::TimedOut, _) => (
                reason::EXEC_SYNC_ANSWERED,
                format!("Call {call} was answered {age} after its command was killed at its timeout"),
            ),
            (StuckKind::Leaked, pid) => {
                let process = pid.map_or_else(|| "A process".to_owned(), |pid| format!("Process {pid}"));
                (reason::EXEC_PROCESS_EXITED, format!("{process} exited {age} after call {call} ended"))
            }
        };
        self.with_refs(Event::normal(reason, sentence))
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
            StuckKind::TimedOut => format!(
                "Call {call} has not been answered, {age} after its command{pid} was killed at its timeout: a \
                 child holds the output: {command}"
            ),
            StuckKind::Leaked if self.is_zombie() => format!(
                "A zombie{pid} still exists {age} after call {call} ended, because its parent does not wait for \
                 it: {command}"
            ),
            StuckKind::Leaked => {
                format!("A process{pid} still runs {age} after call {call} ended: {command}")
            }
        }
    }

    /// Returns whether the leaked process has exited and is a zombie.
    fn is_zombie(&self) -> bool {
        self.command.last().is_some_and(|last| last == DEFUNCT)
    }

    /// Returns whether the message of an event of [`event`](Self::event) is about a zombie.
    #[must_use]
    pub fn is_about_zombie(message: &str) -> bool {
        message.starts_with("A zombie ")
    }

    /// Returns the id of the call in the message of an event of [`event`](Self::event).
    #[must_use]
    pub fn call_of(message: &str) -> Option<u64> {
        let after = || message.split_once(" call ").map(|(_, rest)| rest);
        let rest = message.strip_prefix("Call ").or_else(after)?;
        rest.split(' ').next()?.parse().ok()
    }

    fn with_refs(&self, event: Event) -> Event {
        Event { pod: self.pod.clone(), container: self.container.clone(), ..event }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn the_message_of_an_event_about_a_stuck_exec_names_its_call() {
        for kind in [StuckKind::Overdue, StuckKind::Unanswered, StuckKind::TimedOut, StuckKind::Leaked] {
            let stuck = StuckExec {
                kind,
                call: 4711,
                since: Instant::now(),
                container_id: "c".into(),
                pod: None,
                container: None,
                pid: Some(9),
                command: vec!["check".to_owned(), " call 1 Call 2 ".to_owned()],
            };
            let message = stuck.event(Duration::from_secs(5)).message;
            assert_eq!(StuckExec::call_of(&message), Some(4711), "{message}");
        }
        for other in ["", "Call ", "a call of a friend"] {
            assert_eq!(StuckExec::call_of(other), None);
        }
    }
}
