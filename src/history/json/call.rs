//! JSON of calls.

use serde::{Deserialize, Serialize};

use super::insight::{Evidence, Phases, Probe};
use super::{milliseconds, time};
use crate::execsync::{Assessment, CallRecord, ExecAnalysis};
use crate::object_ref::{ContainerRef, PodRef};
use crate::{relay, tap};

/// A call that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Call {
    pub id: u64,
    pub start: String,
    pub method: String,
    pub duration_ms: f64,
    pub code: String,
    /// Beginning of the gRPC status message; null if there is none.
    #[serde(default)]
    pub message: Option<String>,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub peer: Option<Peer>,
    pub pod: Option<Pod>,
    pub container: Option<Container>,
    /// The image of a call about an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub exec: Option<Exec>,
    /// The reason for which probeshim stopped the container, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
    /// The faults that were injected into the call; empty if there were none.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// The other policies that affected the call: `limit`, `coalesce`, `pause` or `direct`.
    #[serde(default)]
    pub policy: Vec<String>,
    /// The reason for which the runtime executed the command, if direct exec applied to the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarded_because: Option<String>,
}

/// A fault that was injected into a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Fault {
    pub name: String,
    pub action: String,
}

/// Reason for which probeshim stopped a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Kill {
    pub probe: String,
    pub message: String,
    pub threshold: u32,
    pub grace_period_seconds: u32,
    /// The last failed attempts, in order.
    pub failures: Vec<Failure>,
}

/// A probe attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Failure {
    pub time: String,
    pub message: String,
}

/// The client of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Peer {
    pub uid: u32,
    pub pid: Option<i32>,
    pub program: Option<String>,
}

/// The pod of a call. Unknown fields are null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Pod {
    pub id: Option<String>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<String>,
}

/// The container of a call. Unknown fields are null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Container {
    pub id: Option<String>,
    pub name: Option<String>,
    pub attempt: Option<u32>,
}

/// The command of an ExecSync. There is no exit code if no response was decoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Exec {
    pub command: Vec<String>,
    pub command_truncated: bool,
    pub timeout_seconds: i64,
    pub exit_code: Option<i32>,
    pub stdout_bytes: Option<usize>,
    pub stderr_bytes: Option<usize>,
    /// Beginning of the output, stdout before stderr, if probeshim executed the command.
    #[serde(default)]
    pub output: Option<String>,
    /// The probe or hook to which the call is attributed; null if it is unknown.
    pub probe: Option<Probe>,
    /// Time between the end of the call and its timeout; negative if the call ended after its
    /// timeout.
    pub margin_ms: Option<f64>,
    pub phases: Option<Phases>,
    /// `fine`, `slow` or `failed`.
    pub assessment: Option<String>,
    /// Measure of a slow call: `half-of-timeout`, `threshold` or `three-medians`.
    pub slow_because: Option<String>,
    /// Time from the start of the call to the start of the command, if the call returned no exit
    /// code.
    pub started_ms: Option<f64>,
    /// Time from the start of the call to the exit of the command, which may be after the end of
    /// the call.
    pub exited_ms: Option<f64>,
    /// Exit code of the command, or 128 plus the number of the signal that ended it.
    pub exit_status: Option<u32>,
    /// Whether the exit status is that of SIGKILL.
    pub killed: Option<bool>,
    /// Whether the container exited before the call was recorded.
    #[serde(default)]
    pub container_exited: bool,
    pub evidence: Option<Evidence>,
}

impl From<&CallRecord> for Call {
    fn from(record: &CallRecord) -> Self {
        let call = &record.call;
        let insight = record.analysis.as_deref();
        let marks = call.marks.as_deref();
        Self {
            id: call.id,
            start: time(call.start),
            method: call.method.to_string(),
            duration_ms: milliseconds(call.duration),
            code: call.ending.to_string(),
            message: call.message.as_deref().map(str::to_owned),
            request_bytes: call.request_bytes,
            response_bytes: call.response_bytes,
            peer: call.peer.as_deref().map(Peer::from),
            pod: call.pod.as_deref().map(Pod::from),
            container: call.container.as_deref().map(Container::from),
            image: call.image.as_deref().map(str::to_owned),
            exec: call.exec.as_deref().map(|exec| Exec::new(exec, insight)),
            kill: call.kill.as_deref().map(Kill::from),
            faults: marks.iter().flat_map(|marks| &marks.faults).map(Fault::from).collect(),
            policy: marks.map(policies).unwrap_or_default(),
            forwarded_because: marks.and_then(relay::CallMarks::forwarded_because).map(str::to_owned),
        }
    }
}

/// Returns the names of the policies, other than faults, that affected a call.
pub(super) fn policies(marks: &relay::CallMarks) -> Vec<String> {
    marks.policy_names().map(str::to_owned).collect()
}

impl From<&tap::KillRecord> for Kill {
    fn from(kill: &tap::KillRecord) -> Self {
        let tap::KillRecord { probe, message, threshold, grace_period, failures } = kill.clone();
        let failure =
            |failure: tap::ProbeFailure| Failure { time: time(failure.at), message: failure.message };
        let failures = failures.into_iter().map(failure).collect();
        Self { probe, message, threshold, grace_period_seconds: grace_period, failures }
    }
}

impl From<&relay::FaultMark> for Fault {
    fn from(mark: &relay::FaultMark) -> Self {
        Self { name: mark.name.to_string(), action: mark.action.to_string() }
    }
}

impl From<&relay::Peer> for Peer {
    fn from(peer: &relay::Peer) -> Self {
        Self { uid: peer.uid, pid: peer.pid, program: peer.program.clone() }
    }
}

impl From<&PodRef> for Pod {
    fn from(pod: &PodRef) -> Self {
        let PodRef { id, namespace, name, uid } = pod.clone();
        Self { id, namespace, name, uid }
    }
}

impl From<&ContainerRef> for Container {
    fn from(container: &ContainerRef) -> Self {
        let ContainerRef { id, name, attempt } = container.clone();
        Self { id, name, attempt }
    }
}

impl Exec {
    pub(super) fn new(exec: &tap::ExecCall, insight: Option<&ExecAnalysis>) -> Self {
        let command_outcome = insight.and_then(|insight| insight.command_outcome);
        Self {
            command: exec.command.clone(),
            command_truncated: exec.truncated,
            timeout_seconds: exec.timeout_seconds,
            exit_code: exec.result.map(|result| result.exit_code),
            stdout_bytes: exec.result.map(|result| result.stdout_bytes),
            stderr_bytes: exec.result.map(|result| result.stderr_bytes),
            output: exec.output.as_deref().map(str::to_owned),
            probe: insight.and_then(|insight| Probe::from_match(&insight.identity)),
            margin_ms: insight
                .and_then(|insight| insight.margin)
                .map(|margin| margin.as_signed_ms(milliseconds)),
            phases: insight.map(|insight| Phases::from(&insight.phases)),
            assessment: insight.map(|insight| insight.assessment.name().to_owned()),
            slow_because: insight.and_then(|insight| match insight.assessment {
                Assessment::Slow(why) => Some(why.name().to_owned()),
                Assessment::Fine | Assessment::Failed => None,
            }),
            started_ms: command_outcome.and_then(|outcome| outcome.started).map(milliseconds),
            exited_ms: command_outcome.and_then(|outcome| outcome.exited).map(milliseconds),
            exit_status: command_outcome.and_then(|outcome| outcome.status),
            killed: command_outcome.and_then(|outcome| outcome.is_killed()),
            container_exited: insight.is_some_and(|insight| insight.container_exited),
            evidence: insight.and_then(|insight| insight.evidence.as_deref()).map(Evidence::from),
        }
    }
}
