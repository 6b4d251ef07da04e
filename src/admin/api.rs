//! JSON types of the admin API. Fields may be added, but never renamed. Times are in RFC 3339 and
//! UTC, durations in milliseconds.

mod capture;
mod faults;
mod managed_pods;
mod names;
mod pauses;
mod pods;
mod probe;

use serde::{Deserialize, Serialize};

use crate::build_info;
use crate::execsync::{CallRecord, StuckExec};
use crate::history::json::milliseconds;
pub use crate::history::json::{
    Call, CallInFlight, Container, Cpu, Event, Evidence, Exec, Failure, Fault, Kill, ListedCall, Peer,
    Phases, Pids, Pod, Pressures, Probe,
};
use crate::prober::{self, KillStats};

pub use capture::CaptureQuery;
pub use faults::{ActiveFault, ClearBody, FaultBody, FaultPlan, FaultsBody, PlannedHit};
pub(super) use managed_pods::merge_managed;
pub use names::{ProbeNameSource, ProbeNames};
pub use pauses::{
    DirectContainer, ExecPolicies, Pause, PauseBody, PauseReport, PausedContainer, PausedProbe, ResumeBody,
};
pub use pods::{StatusCondition, StatusContainer, StatusPod};
pub(super) use pods::{annotate_not_restartable, pods};
pub use probe::StatusProbe;

/// Query string that selects calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is a parameter of the query string")]
pub struct CallsQuery {
    /// Only calls of this method: its name, or the path of any method.
    pub method: Option<String>,
    /// Only calls about pods in this namespace.
    pub namespace: Option<String>,
    /// Only calls about this pod: its name, `NAMESPACE/NAME`, its uid, or a prefix of its sandbox's
    /// id.
    pub pod: Option<String>,
    /// Only calls about this container: its name, or a prefix of its id.
    pub container: Option<String>,
    /// Only ExecSyncs of this probe or hook.
    pub probe: Option<String>,
    /// Only ExecSyncs of this command, as the table of calls shows it.
    pub command: Option<String>,
    /// Only ExecSyncs with this timeout in milliseconds; 0 for those without one.
    pub timeout_ms: Option<u64>,
    /// Only calls of this client: the name of its program, or its pid.
    pub peer: Option<String>,
    /// Only calls with this code: a gRPC code, or the reason why there is none.
    pub code: Option<String>,
    /// Only calls that failed: with a code other than OK, or with an exit code other than 0. A
    /// subscription that its client ended did not fail.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Only calls of this run, and not those that an earlier probeshim recorded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub this_run: bool,
    /// Whether calls in flight are listed too, after those that have ended.
    #[serde(default, skip_serializing_if = "is_false", alias = "inFlight")]
    pub in_flight: bool,
    /// Whether the answer waits, for at most 2 s, until the calls that have ended are recorded. A
    /// call is recorded once its events have arrived.
    #[serde(default, skip_serializing_if = "is_false")]
    pub settled: bool,
    /// Only calls that ended within this number of milliseconds before the query.
    pub since_ms: Option<u64>,
    /// Maximum number of calls: those that ended last.
    pub last: Option<usize>,
    /// Maximum number of calls: those that took longest, the slowest first.
    pub slowest: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Query string that selects a period of results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineQuery {
    /// Begin of the period, in RFC 3339.
    pub since: String,
    /// End of the period, in RFC 3339.
    pub until: String,
}

/// A line of the stream of calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogLine {
    /// A completed call.
    Call(Box<Call>),
    /// The follower was too slow, and has missed calls.
    Missed {
        /// Number of calls that the follower has missed.
        missed: u64,
    },
}

/// Status of a running probeshim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Version of probeshim.
    pub version: String,
    /// Commit of its sources, with `-dirty` if they differ from it; null if it is unknown.
    #[serde(default)]
    pub commit: Option<String>,
    /// Date of its sources; null if it is unknown.
    #[serde(default)]
    pub date: Option<String>,
    /// Enforcement mode: `off`, `dry-run`, `kill` or `restart`.
    pub mode: String,
    /// Process id of probeshim.
    pub pid: u32,
    /// Time at which probeshim started.
    pub started: String,
    /// Socket on which clients connect.
    pub listen: String,
    /// URL below which `/metrics`, `/healthz` and `/readyz` are served; null if they are not served
    /// on TCP.
    pub http: Option<String>,
    /// URL below which Prometheus on another machine reads `/metrics`; null without
    /// `--metrics-listen`.
    #[serde(default)]
    pub metrics: Option<String>,
    /// Reasons why addresses of the API are not served yet. Opening them is tried again.
    #[serde(default)]
    pub api_failures: Vec<String>,
    /// Status of the runtime.
    pub upstream: UpstreamStatus,
    /// Numbers of client connections.
    pub connections: Connections,
    /// Numbers of calls.
    pub calls: CallCounts,
    /// Directory in which calls are recorded; null if calls are not recorded.
    pub record: Option<DirStatus>,
    /// State directory; null if probeshim keeps no state.
    #[serde(default)]
    pub state: Option<DirStatus>,
    /// Pods of the node, each with its containers.
    pub pods: Vec<StatusPod>,
    /// Recent kills and their limit; null if the enforcement mode is `off`.
    #[serde(default)]
    pub kills: Option<KillTotals>,
    /// Agreement of the kubelet's kills with the would-be kills of a dry run; null if the
    /// enforcement mode is `off`.
    #[serde(default)]
    pub agreement: Option<Agreement>,
    /// Stuck execs.
    pub stuck: Vec<Stuck>,
    /// Active fault rules.
    #[serde(default)]
    pub faults: Vec<ActiveFault>,
    /// Active pauses.
    #[serde(default)]
    pub pauses: Vec<Pause>,
    /// Limits of concurrent ExecSyncs, and coalescing.
    #[serde(default)]
    pub exec_policies: ExecPolicies,
    /// Whether the built-in kubelet is paused because a kubelet uses the runtime. It starts and
    /// stops no containers then.
    #[serde(default)]
    pub paused: bool,
    /// Sources of the names of probes.
    #[serde(default)]
    pub probe_names: ProbeNames,
    /// Number of panics in the observation of calls. Calls are forwarded nevertheless.
    #[serde(default)]
    pub panics: u64,
}

impl Status {
    /// Returns the version of probeshim with the commit and the date of its sources.
    #[must_use]
    pub fn full_version(&self) -> String {
        build_info::with_source(&self.version, self.commit.as_deref(), self.date.as_deref())
    }
}

/// Request and response body of the enforcement mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeBody {
    /// `off`, `dry-run`, `kill` or `restart`.
    pub mode: String,
}

/// Query string of a request to delete a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DeleteQuery {
    /// Uid of the pod.
    pub uid: Option<String>,
    /// Seconds that the containers have to end; absent for the pod's own grace period.
    pub grace_period_seconds: Option<u32>,
}

/// Recent kills and their limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KillTotals {
    /// Maximum number of kills within `within_ms`; null for any number.
    pub limit: Option<usize>,
    /// Period of the kill limit, in milliseconds; null without a limit.
    pub within_ms: Option<f64>,
    /// Number of kills within the last `within_ms`.
    pub recent: usize,
    /// Whether the limit is reached: further kills are skipped.
    pub rate_limited: bool,
}

/// Agreement of the kubelet's kills with the would-be kills of a dry run.
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
    /// Reason why the last write failed; null if it succeeded.
    pub failure: Option<String>,
}

/// A stuck exec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stuck {
    /// `overdue`, `unanswered`, `timed-out`, `leaked` or `zombies`.
    pub kind: String,
    /// Id of the ExecSync call; of several, the last.
    pub call: u64,
    /// Time since the exec got stuck, in milliseconds.
    pub age_ms: f64,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
    /// Name of the container.
    pub container: Option<String>,
    /// Process id, if it is known: of the command, of the leaked process, or of the process that
    /// does not wait for zombies.
    pub pid: Option<u32>,
    /// Command of the ExecSync or of the leaked process, or the name of the youngest zombie.
    pub command: Vec<String>,
    /// Number of zombies; null for other kinds.
    #[serde(default)]
    pub zombies: Option<u32>,
    /// Description of the stuck exec in a sentence.
    pub message: String,
}

/// Status of the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Socket of the runtime.
    pub socket: String,
    /// Whether the runtime answers Version.
    pub ready: bool,
    /// Name of the runtime; null if it does not answer.
    pub runtime: Option<String>,
    /// Version of the runtime; null if it does not answer.
    pub version: Option<String>,
    /// Error because of which the runtime is not ready; null if it is ready.
    pub error: Option<String>,
}

/// Numbers of client connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Number of open connections.
    pub open: i64,
    /// Number of connections accepted since the start of probeshim.
    pub total: u64,
}

/// Numbers of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallCounts {
    /// Number of calls in flight.
    pub in_flight: i64,
    /// Number of calls observed since the start of probeshim.
    pub observed: u64,
    /// Number of call records in the history, which `probeshim calls` shows.
    pub kept: usize,
    /// Number of calls that were forwarded but not observed, because the queue of the tap was full.
    pub dropped: u64,
}

/// A call with its explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The call.
    pub call: ListedCall,
    /// Sentences that explain the call.
    pub sentences: Vec<String>,
}

/// Query string that selects events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events that happened within this number of milliseconds before the query.
    pub since_ms: Option<u64>,
    /// Only events about pods of this namespace.
    pub namespace: Option<String>,
    /// Only events about this pod: its name, `NAMESPACE/NAME` or uid.
    pub pod: Option<String>,
    /// Only events of this type: `Normal` or `Warning`.
    pub r#type: Option<String>,
    /// Only events with this reason, without regard to case.
    pub reason: Option<String>,
}

/// A line of the stream of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "a line is written or shown at once, and not kept")]
pub enum EventLine {
    /// An event.
    Event(Event),
    /// The follower was too slow, and has missed events.
    Missed {
        /// Number of events that the follower has missed.
        missed: u64,
    },
}

/// Response body of a refused request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: String,
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
            zombies: stuck.zombies.as_ref().map(|zombies| zombies.count),
            message: stuck.sentence(age),
        }
    }
}
