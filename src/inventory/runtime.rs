//! Name, version and capabilities of the runtime.

use crate::cri::v1::VersionResponse;

/// Name and version of the runtime, from its response to Version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeInfo {
    /// Name of the runtime, such as `containerd` or `cri-o`.
    pub name: String,
    /// Version of the runtime, such as `v2.2.1`.
    pub version: String,
}

impl RuntimeInfo {
    /// Returns whether the runtime has containerd's events service, with the events about the
    /// processes in its containers.
    #[must_use]
    pub fn publishes_task_events(&self) -> bool {
        matches!(self.name.as_str(), "containerd" | "procrun")
    }

    /// Returns whether every subscriber of `GetContainerEvents` receives every event. containerd
    /// 1.7 has one channel for all subscribers, so that our subscription would take events from the
    /// kubelet. Unknown runtimes are assumed not to broadcast.
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
