//! JSON of the analysis of an ExecSync.

use serde::{Deserialize, Serialize};

use super::milliseconds;
use crate::execsync::{self, ProbeMatch};

/// The probe or hook to which an ExecSync is attributed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// `liveness`, `readiness`, `startup`, `postStart`, `preStop`; `ambiguous` if several have this
    /// command and timeout; `probe` if it is inferred.
    pub r#type: String,
    /// The probes and hooks that match, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
    /// `config`, `annotation`, `manifest`, `kubelet`, `last-applied`, `kubelet-annotation`, or
    /// `learned` for an inferred probe.
    pub source: String,
    /// Confidence of the attribution, from 0 to 1.
    pub confidence: f64,
    /// Period of the probe.
    pub period_ms: Option<f64>,
}

/// Phases of an ExecSync, which add up to its duration. An unknown phase is null, and its time is
/// in `otherMs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Phases {
    /// `complete`, `ambiguous`, `missing` or `unsupported`.
    pub state: String,
    pub queue_ms: f64,
    pub prepare_ms: Option<f64>,
    pub start_ms: Option<f64>,
    pub run_ms: Option<f64>,
    pub drain_ms: Option<f64>,
    pub other_ms: f64,
    /// Exec ids of the first eight candidates, if the call is ambiguous.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
    /// Number of candidates, if the call is ambiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_count: Option<usize>,
    /// The missing events, if the state is `missing`: `everything`, `interrupted`, `not-watched`,
    /// `started` or `exited`.
    pub missing: Option<String>,
}

/// Measurements of the container and the node. Values that were not measured are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Evidence {
    pub window_ms: f64,
    pub in_flight_container: usize,
    pub in_flight_node: usize,
    pub cpu: Option<Cpu>,
    pub container_pressure: Option<Pressures>,
    pub node_pressure: Option<Pressures>,
    #[serde(default)]
    pub node_window_ms: f64,
    pub pids: Option<Pids>,
    pub frozen: Option<bool>,
    pub oom_kills: Option<u64>,
    pub load1: Option<f64>,
    pub processors: Option<usize>,
}

/// CPU usage of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Cpu {
    pub quota: Option<f64>,
    pub used_ms: Option<f64>,
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_ms: f64,
}

/// Time for which some tasks were stalled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Pressures {
    pub cpu_ms: f64,
    pub io_ms: f64,
    pub memory_ms: f64,
}

/// Number of processes and threads of a container, its pod, or several pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Pids {
    pub current: u64,
    pub max: Option<u64>,
    /// `container`, `pod`, or `pods` for a group of pods.
    #[serde(default = "Pids::container")]
    pub scope: String,
}

impl Pids {
    fn container() -> String {
        "container".to_owned()
    }
}

impl Probe {
    /// Returns the JSON of an attribution; `None` if the probe is unknown.
    pub(super) fn from_match(identity: &ProbeMatch) -> Option<Self> {
        let (candidates, source, period) = match identity {
            ProbeMatch::Matched { uses, source, period } => {
                let names: Vec<String> = uses.iter().map(|used| used.name().to_owned()).collect();
                (names, source.name(), *period)
            }
            ProbeMatch::Inferred { period, .. } => (Vec::new(), "learned", Some(*period)),
            ProbeMatch::Unknown => return None,
        };
        Some(Self {
            r#type: identity.label()?.to_owned(),
            candidates: if candidates.len() > 1 { candidates } else { Vec::new() },
            source: source.to_owned(),
            confidence: identity.confidence(),
            period_ms: period.map(milliseconds),
        })
    }
}

impl Phases {
    /// Returns the phases with their names, in order; `None` is an unknown phase.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Option<f64>); 6] {
        [
            ("queue", Some(self.queue_ms)),
            ("prepare", self.prepare_ms),
            ("start", self.start_ms),
            ("run", self.run_ms),
            ("drain", self.drain_ms),
            ("other", Some(self.other_ms)),
        ]
    }
}

impl From<&execsync::Phases> for Phases {
    fn from(phases: &execsync::Phases) -> Self {
        let parts = phases.parts();
        let (candidates, candidate_count, missing) = match phases {
            execsync::Phases::Ambiguous { candidates, count, .. } => {
                (candidates.as_slice(), Some(*count), None)
            }
            execsync::Phases::Missing { what, .. } => (&[][..], None, Some(what.name().to_owned())),
            execsync::Phases::Complete(_) | execsync::Phases::Unsupported(_) => (&[][..], None, None),
        };
        Self {
            state: phases.state().to_owned(),
            queue_ms: milliseconds(parts.queue),
            prepare_ms: parts.prepare.map(milliseconds),
            start_ms: parts.start.map(milliseconds),
            run_ms: parts.run.map(milliseconds),
            drain_ms: parts.drain.map(milliseconds),
            other_ms: milliseconds(parts.other),
            candidates: candidates.iter().map(ToString::to_string).collect(),
            candidate_count,
            missing,
        }
    }
}

impl From<&execsync::Evidence> for Evidence {
    fn from(evidence: &execsync::Evidence) -> Self {
        let (in_flight_container, in_flight_node) = evidence.in_flight;
        let (load1, processors) = evidence.load.unzip();
        Self {
            window_ms: milliseconds(evidence.window),
            in_flight_container,
            in_flight_node,
            cpu: evidence.cpu.map(|cpu| Cpu {
                quota: cpu.quota,
                used_ms: cpu.used.map(milliseconds),
                periods: cpu.periods,
                throttled_periods: cpu.throttled_periods,
                throttled_ms: milliseconds(cpu.throttled),
            }),
            container_pressure: evidence.container_pressure.map(Pressures::from),
            node_pressure: evidence.node_pressure.map(Pressures::from),
            node_window_ms: milliseconds(evidence.psi_window),
            pids: evidence.pids.map(|pids| Pids {
                current: pids.current,
                max: pids.max,
                scope: pids.scope.name().to_owned(),
            }),
            frozen: evidence.is_frozen,
            oom_kills: evidence.oom_kills,
            load1,
            processors,
        }
    }
}

impl From<execsync::PressureStall> for Pressures {
    fn from(pressures: execsync::PressureStall) -> Self {
        Self {
            cpu_ms: milliseconds(pressures.cpu),
            io_ms: milliseconds(pressures.io),
            memory_ms: milliseconds(pressures.memory),
        }
    }
}
