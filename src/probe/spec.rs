//! What is executed in a container, by whose wish, as far as its spec tells.

use std::time::Duration;

/// A command that the kubelet executes in a container again and again, or once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecUse {
    /// What for.
    pub used: Use,
    /// The command, with its variables expanded as the kubelet does.
    pub command: Vec<String>,
    /// What the kubelet gives the runtime as timeout; 0, which is none, for hooks.
    pub timeout_seconds: i64,
    /// From one attempt to the next; `None` for hooks.
    pub period: Option<Duration>,
    /// Where it is written.
    pub source: Source,
}

/// A probe or hook as it is written somewhere: what it executes, or `None` where it does something else, which hides what is written
/// elsewhere as well.
pub(super) type Written = (Use, Option<ExecUse>);

/// What a command is executed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
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

/// Where something is written, in the order in which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An annotation of the pod for probeshim.
    Annotation,
    /// A file that `--pods` names.
    Manifest,
    /// What kubectl left in an annotation of the pod when it was applied.
    LastApplied,
    /// What the kubelet left in an annotation of the container.
    Kubelet,
}

impl Use {
    /// The probes, and the names of their fields in a container.
    pub(super) const PROBES: [(Self, &str); 3] = [
        (Self::Liveness, "livenessProbe"),
        (Self::Readiness, "readinessProbe"),
        (Self::Startup, "startupProbe"),
    ];

    /// The hooks, and the names of their fields in a lifecycle.
    pub(super) const HOOKS: [(Self, &str); 2] = [(Self::PostStart, "postStart"), (Self::PreStop, "preStop")];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = Self::PROBES.into_iter().chain(Self::HOOKS).map(|(used, _)| used);
        all.into_iter().find(|used| used.name() == name)
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

impl Source {
    const ALL: [Self; 4] = [Self::Annotation, Self::Manifest, Self::LastApplied, Self::Kubelet];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Annotation => "annotation",
            Self::Manifest => "manifest",
            Self::LastApplied => "last-applied",
            Self::Kubelet => "kubelet-annotation",
        }
    }
}
