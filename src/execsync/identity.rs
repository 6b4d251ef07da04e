//! Attribution of ExecSyncs to probes and hooks.

use crate::manifest::{ExecPurpose, KnownExec, Source};
use std::time::Duration;

/// The probe or hook to which an ExecSync is attributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ProbeMatch {
    /// A known probe or hook has the command and timeout of the call.
    Matched {
        /// The probes and hooks with this command and timeout: at least one, and several if they
        /// have the same command and timeout.
        uses: Vec<ExecPurpose>,
        /// The probe source of the first entry of `uses`.
        source: Source,
        /// The period of the first entry of `uses`; `None` for a hook.
        period: Option<Duration>,
    },
    /// The calls come at regular intervals, like those of a probe.
    Inferred {
        /// Interval between the calls, a whole number of seconds as for every probe.
        period: Duration,
        /// Confidence of the inference, from 0 to 1.
        confidence: f64,
    },
    /// No known probe or hook matches, and the calls are not regular.
    #[default]
    Unknown,
}

impl ProbeMatch {
    /// Allowed values of a filter: each [label](Self::label), and [`UNKNOWN`](Self::UNKNOWN).
    pub const LABELS: [&str; 8] = [
        "liveness",
        "readiness",
        "startup",
        "postStart",
        "preStop",
        "ambiguous",
        Self::INFERRED,
        Self::UNKNOWN,
    ];

    /// Label of calls of a probe that is inferred from their regular period.
    pub const INFERRED: &str = "probe";

    /// Name of calls without a label.
    pub const UNKNOWN: &str = "unknown";

    /// Finds the probes and hooks of a container that have the command and timeout of a call.
    #[must_use]
    pub fn match_exec(uses: &[KnownExec], command: &[String], timeout_seconds: i64) -> Self {
        let is_it = |used: &&KnownExec| used.command == command && used.timeout_seconds == timeout_seconds;
        let mut found = uses.iter().filter(is_it);
        let Some(first) = found.next() else { return Self::Unknown };
        let uses = std::iter::once(first.purpose).chain(found.map(|used| used.purpose)).collect();
        Self::Matched { uses, source: first.source, period: first.period }
    }

    /// Returns the label of the attribution: `liveness`, `preStop`, …; `ambiguous` if several
    /// probes or hooks match; `probe` if a probe is inferred; `None` if the probe is unknown.
    #[must_use]
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::Matched { uses, .. } => match uses[..] {
                [only] => Some(only.name()),
                _ => Some("ambiguous"),
            },
            Self::Inferred { .. } => Some(Self::INFERRED),
            Self::Unknown => None,
        }
    }

    /// Returns the confidence of the attribution, from 0 to 1.
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
