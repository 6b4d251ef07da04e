//! Commands that are executed in containers, and their purposes.

use std::time::Duration;

use crate::manifest::probe::ProbeType;
use crate::manifest::source::Source;

/// A command that the kubelet executes in a container: periodically for a probe, once for a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownExec {
    /// Purpose of the command.
    pub purpose: ExecPurpose,
    /// The command, with its variables expanded as the kubelet does.
    pub command: Vec<String>,
    /// Timeout of the ExecSync in seconds. 0, for hooks, is no timeout.
    pub timeout_seconds: i64,
    /// Interval between attempts; `None` for hooks.
    pub period: Option<Duration>,
    /// Number of failures in a row after which the probe fails; `None` for hooks.
    pub failure_threshold: Option<u32>,
    /// Source of the probe or hook.
    pub source: Source,
}

/// Purpose of a command that is executed in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecPurpose {
    /// A liveness probe. A failure of the probe restarts the container.
    Liveness,
    /// A readiness probe. The container gets no traffic while the probe fails.
    Readiness,
    /// A startup probe. The other probes begin when it has succeeded.
    Startup,
    /// A postStart hook, which runs after the container has started.
    PostStart,
    /// A preStop hook, which runs before the container is stopped.
    PreStop,
}

impl ExecPurpose {
    const ALL: [Self; 5] = [Self::Liveness, Self::Readiness, Self::Startup, Self::PostStart, Self::PreStop];

    /// Purposes of hooks, with their field names in a lifecycle.
    pub(crate) const HOOK_PURPOSES: [(Self, &str); 2] =
        [(Self::PostStart, "postStart"), (Self::PreStop, "preStop")];

    /// Returns the purpose with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|used| used.name() == name)
    }

    /// Returns whether the purpose is a probe, and not a hook.
    #[must_use]
    pub fn is_probe(self) -> bool {
        !matches!(self, Self::PostStart | Self::PreStop)
    }

    /// Returns the name of the purpose.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
            Self::Startup => "startup",
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
        }
    }
}

impl From<ProbeType> for ExecPurpose {
    fn from(probe_type: ProbeType) -> Self {
        match probe_type {
            ProbeType::Startup => Self::Startup,
            ProbeType::Readiness => Self::Readiness,
            ProbeType::Liveness => Self::Liveness,
        }
    }
}
