//! Kinds of reasons for which the runtime executes a command, although direct exec applies to it.

/// Kind of a reason for which the runtime executes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardKind {
    /// The container is not verified yet.
    Unverified,
    /// The container needs the runtime for all its commands.
    Unsupported,
    /// The command could not be started, or the executor does not run.
    NotStarted,
}

impl ForwardKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Unverified, Self::Unsupported, Self::NotStarted];

    /// Returns the value of the label `reason` in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unverified => "unverified",
            Self::Unsupported => "unsupported",
            Self::NotStarted => "not-started",
        }
    }
}
