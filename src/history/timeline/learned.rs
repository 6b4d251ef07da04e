//! A command that is known only by its calls, which identifies its row in every view.

use std::time::Duration;

use serde::Serialize;

use super::series::ProbeSeries;
use crate::execsync::ProbeMatch;
use crate::terminal::shortened;

/// Maximum number of columns of a command in a label.
const MAX_LABEL_COLUMNS: usize = 40;

/// A command that belongs to no known probe or hook. Its calls have one row, whether a period is
/// inferred from them yet or not: they are identified by the command and the timeout.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedExec {
    /// The command as text; only its program if commands are redacted.
    pub command: String,
    /// Timeout in milliseconds; `None` without one.
    pub timeout_ms: Option<u64>,
}

impl LearnedExec {
    /// Returns the identity of attempts with a type of probe, a handler and a timeout; `None` if
    /// the type is that of a known probe.
    #[must_use]
    pub fn new(probe: &str, handler: &str, timeout: Option<Duration>) -> Option<Self> {
        let milliseconds = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        [ProbeMatch::INFERRED, ProbeMatch::UNKNOWN]
            .contains(&probe)
            .then(|| Self { command: handler.to_owned(), timeout_ms: timeout.map(milliseconds) })
    }

    /// Returns the name of the program, without its directory.
    #[must_use]
    pub fn program(&self) -> &str {
        let (path, _) = self.split();
        let name = path.rsplit('/').next().filter(|name| !name.is_empty());
        name.unwrap_or(if path.is_empty() { ProbeMatch::UNKNOWN } else { path })
    }

    /// Returns the name of the program, and as many of its arguments as a label has room for.
    #[must_use]
    pub fn label(&self) -> String {
        let (_, arguments) = self.split();
        shortened(&format!("{}{arguments}", self.program()), MAX_LABEL_COLUMNS).into_owned()
    }

    /// Returns the path of the program without quotes, and the rest of the command.
    fn split(&self) -> (&str, &str) {
        let quoted = self.command.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
        quoted.unwrap_or_else(|| self.command.split_at(self.command.find(' ').unwrap_or(self.command.len())))
    }
}

impl ProbeSeries {
    /// Returns the command and the timeout that identify attempts which belong to no known probe;
    /// `None` for those of a known one.
    #[must_use]
    pub fn learned(&self) -> Option<LearnedExec> {
        LearnedExec::new(&self.probe, &self.handler, self.timeout)
    }

    /// Returns the label of the probe: its type, or the program of a command that belongs to no
    /// known probe, with its arguments as far as there is room.
    #[must_use]
    pub fn label(&self) -> String {
        self.learned().map_or_else(|| self.probe.clone(), |learned| learned.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_a_command_begins_with_its_program_and_distinguishes_scripts() {
        let exec = |command: &str| LearnedExec { command: command.to_owned(), timeout_ms: None };
        for (command, program, label) in [
            ("cat /tmp/healthy", "cat", "cat /tmp/healthy"),
            ("/usr/bin/curl -fs http://x/", "curl", "curl -fs http://x/"),
            ("sh -c 'exit 3'", "sh", "sh -c 'exit 3'"),
            ("'/opt/my app' -v", "my app", "my app -v"),
            ("true", "true", "true"),
            ("", "unknown", "unknown"),
        ] {
            assert_eq!((exec(command).program(), &*exec(command).label()), (program, label));
        }
        let long = exec("sh -c 'sleep 20; cat /tmp/healthy; echo and much more'").label();
        assert!(long.starts_with("sh -c 'sleep 20; cat") && long.chars().count() <= 40, "{long}");
    }
}
