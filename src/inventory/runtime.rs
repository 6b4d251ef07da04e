//! Which runtime it is, and what it can tell of itself.

use crate::cri::v1::VersionResponse;

/// A runtime, as it answers Version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeInfo {
    /// `containerd`, `cri-o`, …
    pub name: String,
    /// `v2.2.1`, …
    pub version: String,
}

impl RuntimeInfo {
    /// Whether it is containerd, which publishes what becomes of the processes in its containers.
    #[must_use]
    pub fn is_containerd(&self) -> bool {
        self.name == "containerd"
    }

    /// Whether every subscriber of `GetContainerEvents` is told of every event. containerd 1.7 has one channel for all of them, so that
    /// our subscription would take events from the kubelet's; of a runtime that is not known here, nothing is known.
    pub(super) fn broadcasts_events(&self) -> bool {
        match self.name.as_str() {
            "containerd" => self.major().is_some_and(|major| major >= 2),
            "cri-o" | "procrun" => true,
            _ => false,
        }
    }

    fn major(&self) -> Option<u32> {
        self.version.trim_start_matches('v').split('.').next()?.parse().ok()
    }
}

impl From<VersionResponse> for RuntimeInfo {
    fn from(answer: VersionResponse) -> Self {
        Self { name: answer.runtime_name, version: answer.runtime_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_events_are_subscribed_only_if_the_runtime_broadcasts_them() {
        for (name, version, expected) in [
            ("containerd", "v2.2.1", true),
            ("containerd", "2.0.7", true),
            ("containerd", "v1.7.29", false),
            ("containerd", "1.6.20~ds1", false),
            ("containerd", "unknown", false),
            ("cri-o", "1.34.0", true),
            ("some-other", "3.0.0", false),
        ] {
            let runtime = RuntimeInfo { name: name.to_owned(), version: version.to_owned() };
            assert_eq!(runtime.broadcasts_events(), expected, "{name} {version}");
        }
    }
}
