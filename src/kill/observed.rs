//! Messages of events about containers that a kubelet stopped, as far as the relay observed why.

use std::fmt;
use std::time::Duration;

use crate::terminal::format::counted;

/// Text after the name of the container in each message about a probe that failed.
const FAILED: &str = " failed ";

/// Text between the probe and the details.
const STOPPED: &str = ", and the kubelet stopped it";

/// Detail of a container whose probe never succeeded.
const NO_SUCCESS: &str = "no success before";

/// Text that distinguishes the message about a stop for which no exec probe is the reason.
const NO_FAILURE: &str = ", and no exec liveness or startup probe had failed often enough";

/// That text in messages of earlier versions.
const EARLIER_NO_FAILURE: &str = ", and no exec probe had failed";

/// Maximum length in bytes of the command of a probe whose type is known. A longer one is left out.
const MAX_COMMAND: usize = 200;

/// A container that a kubelet stopped after a probe had failed. Displayed as the message of its
/// event, which begins as the kubelet's.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedKill {
    /// Name of the container.
    pub container: String,
    /// Type of the probe, or the possible types, joined with `or`, if they are known.
    pub probe: Option<String>,
    /// Number of failures in a row before the stop; `None` if the attempts of another probe with
    /// the same command are among those that were counted.
    pub failures: Option<u32>,
    /// Time from the start of the container to the stop, in whole tenths of a second, if the start
    /// was observed.
    pub lifetime: Option<Duration>,
    /// Whether the probe had succeeded in this container, or may have: attempts before the start of
    /// probeshim are not known.
    pub has_succeeded: bool,
    /// Command of the probe, if it is the only one that may be the reason.
    pub command: Option<String>,
}

impl ObservedKill {
    /// Returns the kill that a message reports. A message without its command is read too.
    #[must_use]
    pub fn of_message(message: &str) -> Option<Self> {
        let (container, rest) = message.strip_prefix("Container ")?.split_once(FAILED)?;
        let (probe, rest) = rest.split_once(STOPPED)?;
        let (details, rest) =
            rest.strip_prefix(" (").map_or(Some(("", rest)), |details| details.split_once(')'))?;
        let probe = probe.strip_suffix(" probe")?;
        let mut kill = Self {
            container: container.to_owned(),
            probe: (probe != "a").then(|| probe.to_owned()),
            failures: None,
            lifetime: None,
            has_succeeded: true,
            command: rest.strip_prefix(": ").map(str::to_owned),
        };
        for detail in details.split(", ") {
            if let Some((failures, "failure in a row" | "failures in a row")) = detail.split_once(' ') {
                kill.failures = Some(failures.parse().ok()?);
            } else if let Some(seconds) = detail.strip_suffix("s after its start") {
                kill.lifetime = Duration::try_from_secs_f64(seconds.parse().ok()?).ok();
            } else if detail == NO_SUCCESS {
                kill.has_succeeded = false;
            }
        }
        Some(kill)
    }

    /// Returns the message about a stop by a kubelet for which no exec probe is the reason, while
    /// the pod was kept.
    #[must_use]
    pub fn without_failure(container: &str) -> String {
        format!("The kubelet stopped the container {container} and kept its pod{NO_FAILURE}")
    }

    /// Returns whether a message is about a stop for which no exec probe is the reason.
    #[must_use]
    pub fn is_without_failure(message: &str) -> bool {
        message.ends_with(NO_FAILURE) || message.ends_with(EARLIER_NO_FAILURE)
    }
}

impl fmt::Display for ObservedKill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, probe, failures, lifetime, has_succeeded, command } = self;
        let is_shown = |command: &&String| probe.is_none() || command.len() <= MAX_COMMAND;
        let command = command.as_ref().filter(is_shown);
        let probe = probe.as_deref().unwrap_or("a");
        write!(f, "Container {container}{FAILED}{probe} probe{STOPPED}")?;
        let failures = failures.map(|failures| format!("{} in a row", counted(failures, "failure")));
        let lifetime = lifetime.map(|lifetime| format!("{:.1}s after its start", lifetime.as_secs_f64()));
        let no_success = (!has_succeeded).then(|| NO_SUCCESS.to_owned());
        let details: Vec<String> = [failures, lifetime, no_success].into_iter().flatten().collect();
        if !details.is_empty() {
            write!(f, " ({})", details.join(", "))?;
        }
        command.map_or(Ok(()), |command| write!(f, ": {command}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_read_from_its_own_message_also_without_its_command() {
        let kill = ObservedKill {
            container: "main".to_owned(),
            probe: Some("liveness".to_owned()),
            failures: Some(3),
            lifetime: Some(Duration::from_millis(30_200)),
            has_succeeded: false,
            command: None,
        };
        let expected = "Container main failed liveness probe, and the kubelet stopped it (3 failures in a row, 30.2s \
                        after its start, no success before)";
        assert_eq!(kill.to_string(), expected);
        assert_eq!(ObservedKill::of_message(expected), Some(kill.clone()));
        let command = Some("sh -c 'a) b: c'".to_owned());
        let unnamed = ObservedKill { probe: None, failures: Some(1), has_succeeded: true, command, ..kill };
        assert_eq!(ObservedKill::of_message(&unnamed.to_string()), Some(unnamed.clone()));
        let message = unnamed.to_string();
        let (redacted, _) = message.split_once(": ").unwrap();
        let without = ObservedKill { command: None, ..unnamed };
        assert_eq!(ObservedKill::of_message(redacted), Some(without));
    }

    #[test]
    fn a_kill_without_details_and_a_long_command_is_read_too() {
        let command = Some("cat /tmp/ok".to_owned());
        let probe = Some("liveness".to_owned());
        let kill = ObservedKill {
            container: "main".to_owned(),
            probe,
            failures: None,
            lifetime: None,
            has_succeeded: true,
            command,
        };
        let expected = "Container main failed liveness probe, and the kubelet stopped it: cat /tmp/ok";
        assert_eq!(kill.to_string(), expected);
        assert_eq!(ObservedKill::of_message(expected), Some(kill.clone()));
        let long = ObservedKill { command: Some("x".repeat(201)), ..kill };
        assert_eq!(ObservedKill::of_message(&long.to_string()), Some(ObservedKill { command: None, ..long }));
    }

    #[test]
    fn messages_about_other_stops_report_no_kill_for_a_probe() {
        let message = ObservedKill::without_failure("main");
        assert!(ObservedKill::is_without_failure(&message));
        assert!(ObservedKill::is_without_failure("… kept its pod, and no exec probe had failed"));
        for message in
            [&message, "Stopping container main", "Container main failed liveness probe, will be restarted"]
        {
            assert_eq!(ObservedKill::of_message(message), None);
        }
    }
}
