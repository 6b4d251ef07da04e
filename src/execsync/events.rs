//! The events of stuck execs.

use std::slice;
use std::time::Duration;

use super::{StuckExec, StuckKind, Zombies};
use crate::events::{Event, reason};
use crate::terminal::format;

/// Subject of a sentence about zombies that are children of the first process of a container.
const FIRST_PROCESS: &str = "the first process of the container";

impl StuckExec {
    /// Returns the event of an exec that has been stuck for `age`.
    #[must_use]
    pub fn event(&self, age: Duration) -> Event {
        let reason = match self.kind {
            StuckKind::Overdue => reason::EXEC_SYNC_OVERDUE,
            StuckKind::Unanswered => reason::EXEC_SYNC_UNANSWERED,
            StuckKind::TimedOut => reason::EXEC_SYNC_TIMED_OUT,
            StuckKind::Leaked => reason::EXEC_PROCESS_LEAKED,
            StuckKind::Zombies => reason::EXEC_ZOMBIES,
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
            (StuckKind::Zombies, _) => (
                reason::EXEC_ZOMBIES_GONE,
                format!(
                    "No process that an ExecSync started is a zombie any more, {age} after the first was found"
                ),
            ),
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
            StuckKind::Leaked => {
                format!("A process{pid} still runs {age} after call {call} ended: {command}")
            }
            StuckKind::Zombies => {
                self.zombies.as_ref().map(|zombies| zombies.sentence(call)).unwrap_or_default()
            }
        }
    }

    /// Returns the number of zombies in the message of an event of [`event`](Self::event), and
    /// whether the first process of the container does not wait for them; `None` if the event is
    /// about something else.
    #[must_use]
    pub fn zombies_of(message: &str) -> Option<(u32, bool)> {
        let count = message.split(' ').next()?.parse().ok()?;
        Some((count, message.contains(&format!(": {FIRST_PROCESS} (pid "))))
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

impl Zombies {
    /// Describes the zombies in a sentence. `call` left the youngest one.
    fn sentence(&self, call: u64) -> String {
        let name = format::command(slice::from_ref(&self.name));
        let parent = format::command(slice::from_ref(&self.parent.name));
        let pid = self.parent.pid;
        let parent = if self.parent.is_first_process {
            format!("{FIRST_PROCESS} (pid {pid}, {parent})")
        } else {
            format!("process {pid} ({parent})")
        };
        match self.count {
            1 => format!(
                "1 process that call {call} started ({name}) is a zombie: {parent} does not wait for it"
            ),
            count => format!(
                "{count} processes that ExecSyncs started are zombies, of which call {call} left the youngest ({name}): \
                 {parent} does not wait for them"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::execsync::ZombieParent;

    #[test]
    fn the_message_of_an_event_about_a_stuck_exec_names_its_call() {
        for kind in StuckKind::ALL {
            let parent = ZombieParent { pid: 9, name: " call 2 ".to_owned(), is_first_process: true };
            let zombies = Zombies { count: 8, name: " call 3 ".to_owned(), session: 7, parent };
            let stuck = StuckExec {
                kind,
                call: 4711,
                since: Instant::now(),
                container_id: "c".into(),
                pod: None,
                container: None,
                pid: Some(9),
                command: vec!["check".to_owned(), " call 1 Call 2 ".to_owned()],
                zombies: Some(zombies),
            };
            let message = stuck.event(Duration::from_secs(5)).message;
            assert_eq!(StuckExec::call_of(&message), Some(4711), "{message}");
            let zombies = (kind == StuckKind::Zombies).then_some((8, true));
            assert_eq!(StuckExec::zombies_of(&message), zombies, "{message}");
        }
        for other in ["", "Call ", "a call of a friend"] {
            assert_eq!(StuckExec::call_of(other), None);
        }
    }
}
