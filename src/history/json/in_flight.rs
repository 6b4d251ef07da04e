//! JSON of calls in flight.

use serde::{Deserialize, Serialize};

use super::call::{Call, Container, Exec, Fault, Peer, Pod, policies};
use super::insight::Probe;
use super::{milliseconds, time};
use crate::execsync;

/// A call in flight. It has the fields of a call, of which those about its end are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct CallInFlight {
    pub id: u64,
    pub start: String,
    pub method: String,
    /// Always true.
    pub in_flight: bool,
    /// Time since the start of the call.
    pub age_ms: f64,
    pub ended_at: Option<String>,
    pub duration_ms: Option<f64>,
    pub code: Option<String>,
    pub peer: Option<Peer>,
    pub pod: Option<Pod>,
    pub container: Option<Container>,
    pub exec: Option<Exec>,
    /// `queue` while a policy holds the request, then `start`, `run` or `drain`; null if no event
    /// of the runtime describes the command.
    pub phase: Option<String>,
    /// Pid of the command on the host, once it has started.
    pub pid: Option<u32>,
    /// The faults that hold the call; empty if there are none.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// The other policies that hold the call: `limit` or `coalesce`.
    #[serde(default)]
    pub policy: Vec<String>,
}

/// A call that has ended or is in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ListedCall {
    /// A call that has ended.
    Ended(Box<Call>),
    /// A call in flight.
    InFlight(Box<CallInFlight>),
}

impl ListedCall {
    /// Returns the id of the call.
    #[must_use]
    pub fn id(&self) -> u64 {
        match self {
            Self::Ended(call) => call.id,
            Self::InFlight(call) => call.id,
        }
    }

    /// Returns the pod of the call.
    #[must_use]
    pub fn pod(&self) -> Option<&Pod> {
        match self {
            Self::Ended(call) => call.pod.as_ref(),
            Self::InFlight(call) => call.pod.as_ref(),
        }
    }

    /// Returns the client of the call.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Ended(call) => call.peer.as_ref(),
            Self::InFlight(call) => call.peer.as_ref(),
        }
    }

    /// Returns the container of the call.
    #[must_use]
    pub fn container(&self) -> Option<&Container> {
        match self {
            Self::Ended(call) => call.container.as_ref(),
            Self::InFlight(call) => call.container.as_ref(),
        }
    }
}

impl From<&execsync::CallInFlight> for CallInFlight {
    fn from(call: &execsync::CallInFlight) -> Self {
        let execsync::CallInFlight { info, details } = call;
        let marks = details.held.as_ref();
        let exec = details
            .exec
            .as_deref()
            .map(|exec| Exec { probe: Probe::from_match(&details.probe_match), ..Exec::new(exec, None) });
        Self {
            id: info.id,
            start: time(info.start),
            method: info.method.to_string(),
            in_flight: true,
            age_ms: milliseconds(call.age()),
            ended_at: None,
            duration_ms: None,
            code: None,
            peer: info.peer.as_deref().map(Peer::from),
            pod: details.pod.as_deref().map(Pod::from),
            container: details.container.as_deref().map(Container::from),
            exec,
            phase: details.phase().map(str::to_owned),
            pid: details.progress.and_then(|progress| progress.pid),
            faults: marks.iter().flat_map(|marks| &marks.faults).map(Fault::from).collect(),
            policy: marks.map(policies).unwrap_or_default(),
        }
    }
}
