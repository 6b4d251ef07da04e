//! What is executed in a container, and what for.

use std::time::Duration;

use crate::manifest::probe::ProbeType;
use crate::manifest::source::Source;

/// A command that the kubelet executes in a container again and again, or once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownExec {
    /// What for.
    pub purpose: ExecPurpose,
    /// The command, with its variables expanded as the kubelet does.
    pub command: Vec<String>,
    /// What the kubelet gives the runtime as timeout; 0, which is none, for hooks.
    pub timeout_seconds: i64,
    /// From one attempt to the next; `None` for hooks.
    pub period: Option<Duration>,
    /// Where it is written.
    pub source: Source,
}

/// What a command is executed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecPurpose {
    /// The container is restarted when it fails.
    Liveness,
    /// The container gets no traffic while it fails.
    Readiness,
    /// The other two wait until it succeeds.
    Startup,
    /// Once the container runs.
    PostStart,
    /// Before the container is stopped.
    PreStop,
}

impl ExecPurpose {
    const ALL: [Self; 5] = [Self::Liveness, Self::Readiness, Self::Startup, Self::PostStart, Self::PreStop];

    /// The hooks, and the names of their fields in a lifecycle.
    pub(crate) const HOOK_PURPOSES: [(Self, &str); 2] =
        [(Self::PostStart, "postStart"), (Self::PreStop, "preStop")];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|used| used.name() == name)
    }

    /// Its name.
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
