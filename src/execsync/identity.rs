//! Whose an ExecSync was: which probe's or hook's.

use crate::manifest::{ExecPurpose, KnownExec, Source};
use std::time::Duration;

/// Whose an ExecSync was.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ProbeMatch {
    /// A probe's or hook's whose command and timeout these are.
    Matched {
        /// Which; more than one where they have the same command and timeout. Never empty.
        uses: Vec<ExecPurpose>,
        /// Who says so of the first of them.
        source: Source,
        /// From one attempt to the next, of the first of them; `None` for a hook.
        period: Option<Duration>,
    },
    /// Somebody's who comes again and again, as a probe does.
    Inferred {
        /// From one attempt to the next, in whole seconds, as probes have it.
        period: Duration,
        /// How sure that is, from 0 to 1.
        confidence: f64,
    },
    /// Nothing tells.
    #[default]
    Unknown,
}

impl ProbeMatch {
    /// What may be asked for: every [label](Self::label), and the word for none.
    pub const LABELS: [&str; 8] =
        ["liveness", "readiness", "startup", "postStart", "preStop", "ambiguous", "probe", Self::UNKNOWN];

    /// The word for what has no label.
    pub const UNKNOWN: &str = "unknown";

    /// Looks for the command and timeout of a call among those that a container's specs tell of.
    #[must_use]
    pub fn match_exec(uses: &[KnownExec], command: &[String], timeout_seconds: i64) -> Self {
        let is_it = |used: &&KnownExec| used.command == command && used.timeout_seconds == timeout_seconds;
        let mut found = uses.iter().filter(is_it);
        let Some(first) = found.next() else { return Self::Unknown };
        let uses = std::iter::once(first.purpose).chain(found.map(|used| used.purpose)).collect();
        Self::Matched { uses, source: first.source, period: first.period }
    }

    /// A word for what it was: `liveness`, `preStop`, …, `ambiguous` where specs tell of several alike, `probe` where it was learned;
    /// `None` where nothing tells.
    #[must_use]
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::Matched { uses, .. } => match uses[..] {
                [only] => Some(only.name()),
                _ => Some("ambiguous"),
            },
            Self::Inferred { .. } => Some("probe"),
            Self::Unknown => None,
        }
    }

    /// How sure it is, from 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "there are five uses")]
    pub fn confidence(&self) -> f64 {
        match self {
            Self::Matched { uses, .. } => 1.0 / uses.len() as f64,
            Self::Inferred { confidence, .. } => *confidence,
            Self::Unknown => 0.0,
        }
    }
}
