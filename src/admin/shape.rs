//! The JSON of the API. Fields may be added, never renamed; times are RFC 3339 in UTC, durations milliseconds.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::relay;
use crate::tap;

/// Which calls to tell of, as a query string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallsQuery {
    /// The name of a method, or the path of any.
    pub method: Option<String>,
    /// Only calls that ended within so many milliseconds.
    pub since_ms: Option<u64>,
    /// Only so many, those that ended last.
    pub last: Option<usize>,
    /// Only so many, those that took longest, the slowest first.
    pub slowest: Option<usize>,
}

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
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub peer: Option<Peer>,
    pub pod: Option<Pod>,
    pub container: Option<Container>,
    pub exec: Option<Exec>,
}

/// Who made a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Peer {
    pub uid: u32,
    pub pid: Option<i32>,
    pub program: Option<String>,
}

/// The pod that a call was about. What is not known is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Pod {
    pub id: Option<String>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<String>,
}

/// The container that a call was about. What is not known is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Container {
    pub id: Option<String>,
    pub name: Option<String>,
    pub attempt: Option<u32>,
}

/// What an ExecSync executed. Without an answer, or with one that was not decoded, there is no exit code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Exec {
    pub command: Vec<String>,
    pub command_truncated: bool,
    pub timeout_seconds: i64,
    pub exit_code: Option<i32>,
    pub stdout_bytes: Option<usize>,
    pub stderr_bytes: Option<usize>,
}

/// A line of those who follow: a call, or how many were missed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// A call that ended.
    Call(Box<Call>),
    /// The follower was too slow, and these are gone.
    Missed {
        /// How many calls.
        missed: u64,
    },
}

/// How a probeshim stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Whether it acts on probes: `off`.
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
    pub upstream: Upstream,
    /// Client connections.
    pub connections: Connections,
    /// Calls.
    pub calls: CallCounts,
}

/// How the runtime stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
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

/// Why a request was refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
}

/// A time as the API writes it, to the millisecond.
pub(super) fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}

/// A duration as the API writes it, to the microsecond.
#[expect(clippy::cast_precision_loss, reason = "exact for the first 285 years")]
fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

impl From<&tap::Call> for Call {
    fn from(call: &tap::Call) -> Self {
        Self {
            id: call.id,
            start: time(call.start),
            method: call.method.to_string(),
            duration_ms: milliseconds(call.duration),
            code: call.ending.to_string(),
            request_bytes: call.request_bytes,
            response_bytes: call.response_bytes,
            peer: call.peer.as_deref().map(Peer::from),
            pod: call.pod.as_deref().map(Pod::from),
            container: call.container.as_deref().map(Container::from),
            exec: call.exec.as_deref().map(Exec::from),
        }
    }
}

impl From<&tap::Call> for Line {
    fn from(call: &tap::Call) -> Self {
        Self::Call(Box::new(call.into()))
    }
}

impl From<&relay::Peer> for Peer {
    fn from(peer: &relay::Peer) -> Self {
        Self { uid: peer.uid, pid: peer.pid, program: peer.program.clone() }
    }
}

impl From<&tap::Pod> for Pod {
    fn from(pod: &tap::Pod) -> Self {
        let tap::Pod { id, namespace, name, uid } = pod.clone();
        Self { id, namespace, name, uid }
    }
}

impl From<&tap::Container> for Container {
    fn from(container: &tap::Container) -> Self {
        let tap::Container { id, name, attempt } = container.clone();
        Self { id, name, attempt }
    }
}

impl From<&tap::Exec> for Exec {
    fn from(exec: &tap::Exec) -> Self {
        Self {
            command: exec.command.clone(),
            command_truncated: exec.is_cut,
            timeout_seconds: exec.timeout_seconds,
            exit_code: exec.result.map(|result| result.exit_code),
            stdout_bytes: exec.result.map(|result| result.stdout_bytes),
            stderr_bytes: exec.result.map(|result| result.stderr_bytes),
        }
    }
}
