//! The pods of a node, with what is known of those that are probed.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cri::v1::ContainerState;
use crate::prober::{Condition, ContainerReport, PodReport, ProbeReport, ProbeResult};
use crate::world::{self, World};

/// A pod, as it is on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPod {
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its uid.
    pub uid: Option<String>,
    /// Its sandbox.
    pub id: String,
    /// `ready` or `stopped`: its sandbox.
    pub sandbox: String,
    /// Its first address.
    pub ip: Option<String>,
    /// `call`, `event`, `list` or `enquiry`: what was the latest to say something new of it.
    pub source: String,
    /// Of one that is probed: `Pending`, `Running`, `Succeeded` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Of one that is probed: whether all its containers are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Of one that is probed: `ContainersReady` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
    /// Its containers, in the order in which they were created.
    pub containers: Vec<StatusContainer>,
}

/// A condition of a pod, as Kubernetes has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Its name.
    pub r#type: String,
    /// `True` or `False`.
    pub status: String,
    /// Why not, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why not, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A probe of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusProbe {
    /// `startup`, `readiness` or `liveness`.
    pub r#type: String,
    /// `exec`, `httpGet`, `tcpSocket` or `grpc`.
    pub handler: String,
    /// Where it is written.
    pub source: String,
    /// The last result that counted, if there was one: `success` or `failure`.
    pub result: Option<String>,
    /// How often it has come in a row.
    pub run: u32,
    /// How often it has to come in a row.
    pub threshold: u32,
    /// What is held to be so: `success`, `failure` or `unknown`; nothing before the first verdict.
    pub verdict: Option<String>,
    /// Nothing is probed until there is another container.
    pub on_hold: bool,
    /// How often the container would have been killed.
    pub would_have_killed: u32,
    /// How often it has had containers of this name killed.
    #[serde(default)]
    pub killed: u32,
}

/// A container, as it is on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusContainer {
    /// Its name.
    pub name: Option<String>,
    /// Its id.
    pub id: String,
    /// How often it had been created before.
    pub attempt: Option<u32>,
    /// `created`, `running`, `exited` or `unknown`.
    pub state: String,
    /// Of one that has exited, where it is known.
    pub exit_code: Option<i32>,
    /// The runtime's word for it.
    pub reason: Option<String>,
    /// Of one that is probed: whether it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// Of one that is probed: whether it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Its probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<StatusProbe>,
    /// `call`, `event`, `list` or `enquiry`: what was the latest to say something new of it.
    pub source: String,
}

/// The pods of a world by namespace and name, each with its containers, and what is known of those that are probed.
pub(in crate::admin) fn pods(world: &World, probed: &[PodReport]) -> Vec<StatusPod> {
    let probed: HashMap<&str, &PodReport> =
        probed.iter().filter_map(|report| Some((report.names.id.as_deref()?, report))).collect();
    let mut containers: HashMap<&str, Vec<&Arc<world::Container>>> = HashMap::new();
    for container in world.containers() {
        containers.entry(container.sandbox.as_deref().unwrap_or_default()).or_default().push(container);
    }
    let mut sandboxes: Vec<_> = world.sandboxes().collect();
    sandboxes
        .sort_by_key(|sandbox| (&sandbox.pod.namespace, &sandbox.pod.name, sandbox.created_at, &sandbox.id));
    let pod = |sandbox: &Arc<world::Sandbox>| {
        let mut containers = containers.remove(&*sandbox.id).unwrap_or_default();
        containers.sort_by_key(|container| (container.created_at, &container.id));
        let report = probed.get(&*sandbox.id);
        let of = |container: &Arc<world::Container>| {
            let id = container.name.id.as_ref();
            report.and_then(|report| report.containers.iter().find(|known| known.names.id.as_ref() == id))
        };
        StatusPod {
            namespace: sandbox.pod.namespace.clone(),
            name: sandbox.pod.name.clone(),
            uid: sandbox.pod.uid.clone(),
            id: sandbox.id.to_string(),
            sandbox: if sandbox.is_ready { "ready" } else { "stopped" }.to_owned(),
            ip: sandbox.addresses.first().cloned(),
            source: sandbox.source.name().to_owned(),
            phase: report.map(|report| report.phase.name().to_owned()),
            ready: report.map(|report| report.conditions.iter().all(|condition| condition.is_met)),
            conditions: report.into_iter().flat_map(|it| &it.conditions).map(StatusCondition::from).collect(),
            containers: containers.into_iter().map(|it| StatusContainer::new(it, of(it))).collect(),
        }
    };
    sandboxes.into_iter().map(pod).collect()
}

impl StatusContainer {
    fn new(container: &world::Container, report: Option<&ContainerReport>) -> Self {
        let state = match container.state {
            ContainerState::ContainerCreated => "created",
            ContainerState::ContainerRunning => "running",
            ContainerState::ContainerExited => "exited",
            ContainerState::ContainerUnknown => "unknown",
        };
        let (exit_code, reason) = container.exit.clone().unzip();
        Self {
            name: container.name.name.clone(),
            id: container.id.to_string(),
            attempt: container.name.attempt,
            state: state.to_owned(),
            exit_code,
            reason: reason.filter(|reason| !reason.is_empty()),
            started: report.map(|report| report.is_started),
            ready: report.map(|report| report.is_ready),
            probes: report.into_iter().flat_map(|it| &it.probes).map(StatusProbe::from).collect(),
            source: container.source.name().to_owned(),
        }
    }
}

impl From<&Condition> for StatusCondition {
    fn from(condition: &Condition) -> Self {
        Self {
            r#type: condition.kind.to_owned(),
            status: if condition.is_met { "True" } else { "False" }.to_owned(),
            reason: condition.reason.map(str::to_owned),
            message: condition.message.clone(),
        }
    }
}

impl From<&ProbeReport> for StatusProbe {
    fn from(report: &ProbeReport) -> Self {
        let threshold = match report.run.last {
            Some(ProbeResult::Failure) => report.probe.failure_threshold,
            _ => report.probe.success_threshold,
        };
        Self {
            r#type: report.probe_type.name().to_owned(),
            handler: report.probe.handler.name().to_owned(),
            source: report.probe.source.name().to_owned(),
            result: report.run.last.map(|last| last.name().to_owned()),
            run: report.run.length,
            threshold,
            verdict: report.result.map(|result| result.name().to_owned()),
            on_hold: report.on_hold,
            would_have_killed: report.would_have_killed,
            killed: report.killed,
        }
    }
}
