//! The JSON of the API. Fields may be added, never renamed; times are RFC 3339 in UTC, durations milliseconds.

mod pods;

use serde::{Deserialize, Serialize};

use crate::execsync::{CallRecord, StuckExec};
use crate::history::json::milliseconds;
pub use crate::history::json::{
    Call, Container, Cpu, Event, Evidence, Exec, Failure, Kill, Peer, Phases, Pids, Pod, Pressures, Probe,
};
use crate::prober::{self, KillStats};

pub use pods::{StatusCondition, StatusContainer, StatusPod, StatusProbe};
pub(super) use pods::{annotate_not_restartable, merge_managed, pods};

/// Which calls to tell of, as a query string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallsQuery {
    /// The name of a method, or the path of any.
    pub method: Option<String>,
    /// Only calls about this pod: its name, `NAMESPACE/NAME`, its uid, or the beginning of its sandbox's id.
    pub pod: Option<String>,
    /// Only calls about this container: its name, or the beginning of its id.
    pub container: Option<String>,
    /// Only ExecSyncs of this probe or hook.
    pub probe: Option<String>,
    /// Only calls that ended within so many milliseconds.
    pub since_ms: Option<u64>,
    /// Only so many, those that ended last.
    pub last: Option<usize>,
    /// Only so many, those that took longest, the slowest first.
    pub slowest: Option<usize>,
}

/// A line of those who follow: a call, or how many were missed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogLine {
    /// A call that ended.
    Call(Box<Call>),
    /// The follower was too slow, and these are gone.
    Missed {
        /// How many calls.
        missed: u64,
    },
}

/// How a probeshim stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its version.
    pub version: String,
    /// What it does about probes: `off`, `dry-run` or `kill`.
    pub mode: String,
    /// Its process.
    pub pid: u32,
    /// Since when it runs.
    pub started: String,
    /// Where clients connect.
    pub listen: String,
    /// Where `/metrics`, `/healthz` and `/readyz` are served; null where they are not.
    pub http: Option<String>,
    /// The runtime.
    pub upstream: UpstreamStatus,
    /// Client connections.
    pub connections: Connections,
    /// Calls.
    pub calls: CallCounts,
    /// Directory in which calls are recorded; null where they are not.
    pub record: Option<DirStatus>,
    /// State directory; null without one.
    #[serde(default)]
    pub state: Option<DirStatus>,
    /// The pods of the node, each with its containers.
    pub pods: Vec<StatusPod>,
    /// How kills stand; null where no probes are made.
    #[serde(default)]
    pub kills: Option<KillTotals>,
    /// How a kubelet's kills and ours agree, in dry-run beside it; null where no probes are made.
    #[serde(default)]
    pub agreement: Option<Agreement>,
    /// What is stuck.
    pub stuck: Vec<Stuck>,
    /// Whether nothing is started or ended of the pods that are played, because a kubelet uses the runtime.
    #[serde(default)]
    pub paused: bool,
    /// Number of panics in the observation of calls; calls are forwarded all the same.
    #[serde(default)]
    pub panics: u64,
}

/// What is done about probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeBody {
    /// `off`, `dry-run` or `kill`.
    pub mode: String,
}

/// How kills stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KillTotals {
    /// How many there may be within that time; null for any number.
    pub limit: Option<usize>,
    /// Within which time.
    pub within_ms: Option<f64>,
    /// How many there have been.
    pub recent: usize,
    /// Whether the limit is reached: further kills are skipped.
    pub rate_limited: bool,
}

/// How a kubelet's kills and ours agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agreement {
    /// Kills by the kubelet that the prober predicted.
    pub predicted: u64,
    /// Kills by the kubelet that the prober did not predict.
    pub unpredicted: u64,
    /// Kills that the prober predicted and the kubelet did not make.
    pub not_observed: u64,
}

/// Directory that probeshim writes to, and its last write failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirStatus {
    /// Path of the directory.
    pub dir: String,
    /// Why nothing is written there now; null while it is.
    pub failure: Option<String>,
}

/// Something that is stuck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stuck {
    /// `overdue`, `unanswered` or `leaked`.
    pub kind: String,
    /// The call.
    pub call: u64,
    /// For how long.
    pub age_ms: f64,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The pod.
    pub pod: Option<String>,
    /// The container.
    pub container: Option<String>,
    /// The process, where it is known.
    pub pid: Option<u32>,
    /// What it executes.
    pub command: Vec<String>,
    /// All that in a sentence.
    pub message: String,
}

/// How the runtime stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its socket.
    pub socket: String,
    /// Whether it answers Version.
    pub ready: bool,
    /// Its name, if it answers.
    pub runtime: Option<String>,
    /// Its version, if it answers.
    pub version: Option<String>,
    /// Why it is not ready.
    pub error: Option<String>,
}

/// Client connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Open now.
    pub open: i64,
    /// Accepted since the start.
    pub total: u64,
}

/// Calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallCounts {
    /// In flight now.
    pub in_flight: i64,
    /// Observed since the start.
    pub observed: u64,
    /// Of those, kept for `calls`.
    pub kept: usize,
    /// Forwarded but not observed, because the queue was full.
    pub dropped: u64,
}

/// A call, and what can be said of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The call.
    pub call: Call,
    /// Plain sentences.
    pub sentences: Vec<String>,
}

/// Which events to tell of, as a query string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events that happened within so many milliseconds.
    pub since_ms: Option<u64>,
}

/// A line of those who follow: an event, or how many were missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventLine {
    /// Something that happened.
    Event(Event),
    /// The follower was too slow, and these are gone.
    Missed {
        /// How many events.
        missed: u64,
    },
}

/// Why a request was refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) error: String,
}

impl From<KillStats> for KillTotals {
    fn from(now: KillStats) -> Self {
        let KillStats { most, recent, rate_limited } = now;
        let (limit, within_ms) = most.map(|most| (most.count, milliseconds(most.within))).unzip();
        Self { limit, within_ms, recent, rate_limited }
    }
}

impl From<prober::Agreement> for Agreement {
    fn from(agreement: prober::Agreement) -> Self {
        let prober::Agreement { predicted, unpredicted, not_observed } = agreement;
        Self { predicted, unpredicted, not_observed }
    }
}

impl From<&CallRecord> for LogLine {
    fn from(record: &CallRecord) -> Self {
        Self::Call(Box::new(record.into()))
    }
}

impl From<&StuckExec> for Stuck {
    fn from(stuck: &StuckExec) -> Self {
        let age = stuck.since.elapsed();
        let pod = stuck.pod.as_deref();
        Self {
            kind: stuck.kind.name().to_owned(),
            call: stuck.call,
            age_ms: milliseconds(age),
            namespace: pod.and_then(|pod| pod.namespace.clone()),
            pod: pod.and_then(|pod| pod.name.clone()),
            container: stuck.container.as_deref().and_then(|container| container.name.clone()),
            pid: stuck.pid,
            command: stuck.command.clone(),
            message: stuck.sentence(age),
        }
    }
}
