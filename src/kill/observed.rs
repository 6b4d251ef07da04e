//! Messages of events about containers that a kubelet stopped, as far as the relay observed why.

use std::fmt;
use std::time::Duration;

/// Text after the name of the container in each message about a probe that failed.
const FAILED: &str = " failed ";

/// Text between the probe and the details.
const STOPPED: &str = ", and the kubelet stopped it (";

/// Detail of a container whose probe never succeeded.
const NO_SUCCESS: &str = "no success before";

/// Text that distinguishes the message about a stop for which no exec probe is the reason.
const NO_FAILURE: &str = ", and no exec probe had failed";

/// A container that a kubelet stopped after a probe had failed. Displayed as the message of its
/// event, which begins as the kubelet's.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedKill {
    /// Name of the container.
    pub container: String,
    /// Type of the probe, or the possible types, joined with `or`, if they are known.
    pub probe: Option<String>,
    /// Number of failures in a row before the stop.
    pub failures: u32,
    /// Time from the start of the container to the stop, in whole tenths of a second, if the start
    /// was observed.
    pub lifetime: Option<Duration>,
    /// Whether the probe had succeeded in this container, or may have: attempts before the start of
    /// probeshim are not known.
    pub has_succeeded: bool,
    /// Command of the probe, if its type is unknown.
    pub command: Option<String>,
}

impl ObservedKill {
    /// Returns the kill that a message reports. A message without its command is read too.
    #[must_use]
    pub fn of_message(message: &str) -> Option<Self> {
        let (container, rest) = message.strip_prefix("Container ")?.split_once(FAILED)?;
        let (probe, rest) = rest.split_once(STOPPED)?;
        let (details, rest) = rest.split_once(')')?;
        let probe = probe.strip_suffix(" probe")?;
        let mut details = details.split(", ");
        let (failures, _) = details.next()?.split_once(' ')?;
        let mut kill = Self {
            container: container.to_owned(),
            probe: (probe != "a").then(|| probe.to_owned()),
            failures: failures.parse().ok()?,
            lifetime: None,
            has_succeeded: true,
            command: rest.strip_prefix(": ").map(str::to_owned),
        };
        for detail in details {
            if let Some(seconds) = detail.strip_suffix("s after its start") {
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
        message.ends_with(NO_FAILURE)
    }
}

impl fmt::Display for ObservedKill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, probe, failures, lifetime, has_succeeded, command } = self;
        let probe = probe.as_deref().unwrap_or("a");
        let plural = if *failures == 1 { "" } else { "s" };
        write!(f, "Container {container}{FAILED}{probe} probe{STOPPED}{failures} failure{plural} in a row")?;
        if let Some(lifetime) = lifetime {
            write!(f, ", {:.1}s after its start", lifetime.as_secs_f64())?;
        }
        if !has_succeeded {
            write!(f, ", {NO_SUCCESS}")?;
        }
        f.write_str(")")?;
        command.iter().try_for_each(|command| write!(f, ": {command}"))
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
            failures: 3,
            lifetime: Some(Duration::from_millis(30_200)),
            has_succeeded: false,
            command: None,
        };
        let expected = "Container main failed liveness probe, and the kubelet stopped it (3 failures in a row, 30.2s \
                        after its start, no success before)";
        assert_eq!(kill.to_string(), expected);
        assert_eq!(ObservedKill::of_message(expected), Some(kill.clone()));
        let command = Some("sh -c 'a) b: c'".to_owned());
        let unnamed = ObservedKill { probe: None, failures: 1, has_succeeded: true, command, ..kill };
        assert_eq!(ObservedKill::of_message(&unnamed.to_string()), Some(unnamed.clone()));
        let message = unnamed.to_string();
        let (redacted, _) = message.split_once(": ").unwrap();
        let without = ObservedKill { command: None, ..unnamed };
        assert_eq!(ObservedKill::of_message(redacted), Some(without));
    }

    #[test]
    fn messages_about_other_stops_report_no_kill_for_a_probe() {
        let message = ObservedKill::without_failure("main");
        assert!(ObservedKill::is_without_failure(&message));
        for message in
            [&message, "Stopping container main", "Container main failed liveness probe, will be restarted"]
        {
            assert_eq!(ObservedKill::of_message(message), None);
        }
    }
}
