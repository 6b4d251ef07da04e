//! The pods of a node, with what is known of those that are probed.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as corev1;
use serde::{Deserialize, Serialize};

use crate::cri::v1::ContainerState;
use crate::history::json::time;
use crate::inventory::{self, Inventory};
use crate::kubelet::{
    ClientPodsSnapshot, ContainerStatusExt as _, PodKey, PodStatusExt, PublishedPod, Summary,
};
use crate::object_ref::PodRef;
use crate::prober::{ContainerReport, PodCondition, PodReport, ProbeReport, ProbeResult};

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
    /// `call`, `event`, `list` or `inspect`: what was the latest to say something new of it; `play` of one that is played.
    pub source: String,
    /// Of one that is probed: `Pending`, `Running`, `Succeeded` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Of one that is played: how it is in one word, as kubectl shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Of one that is played: how many of its containers are ready, without those that only run first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_containers: Option<usize>,
    /// Of one that is played: how many of these there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_containers: Option<usize>,
    /// Of one that is played: since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// If nothing is left of a pod that was played: since when. It is shown for five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
    /// Of one that is played: how often its containers have been restarted; once it is initialised without those that only run first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// Of one that is played: when the last of those that were restarted had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted: Option<String>,
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
    /// Of one that is played: how often it has been restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// `created`, `running`, `exited` or `unknown`; of one that is played `waiting` where it is to be started.
    pub state: String,
    /// Of one that has exited, where it is known.
    pub exit_code: Option<i32>,
    /// The runtime's word for it; of one that waits, the kubelet's.
    pub reason: Option<String>,
    /// Of one that is played: a sentence for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why it is not started again when it ends, where others are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restartable: Option<String>,
    /// Of one that is probed: whether it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// Of one that is probed: whether it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Its probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<StatusProbe>,
    /// `call`, `event`, `list` or `inspect`: what was the latest to say something new of it; `play` of one that is played.
    pub source: String,
}

/// The pods of a world by namespace and name, each with its containers, and what is known of those that are probed.
pub(in crate::admin) fn pods(inventory: &Inventory, probed: &[PodReport]) -> Vec<StatusPod> {
    let probed: HashMap<&str, &PodReport> =
        probed.iter().filter_map(|report| Some((report.names.id.as_deref()?, report))).collect();
    let mut containers: HashMap<&str, Vec<&Arc<inventory::Container>>> = HashMap::new();
    for container in inventory.containers() {
        containers.entry(container.sandbox.as_deref().unwrap_or_default()).or_default().push(container);
    }
    let mut sandboxes: Vec<_> = inventory.sandboxes().collect();
    sandboxes
        .sort_by_key(|sandbox| (&sandbox.pod.namespace, &sandbox.pod.name, sandbox.created_at, &sandbox.id));
    let pod = |sandbox: &Arc<inventory::Sandbox>| {
        let mut containers = containers.remove(&*sandbox.id).unwrap_or_default();
        containers.sort_by_key(|container| (container.created_at, &container.id));
        let report = probed.get(&*sandbox.id);
        let of = |container: &Arc<inventory::Container>| {
            let id = container.container_ref.id.as_ref();
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
            status: None,
            started: None,
            ready_containers: None,
            total_containers: None,
            restarts: None,
            removed: None,
            restarted: None,
            ready: report.map(|report| report.conditions.iter().all(|condition| condition.is_met)),
            conditions: report.into_iter().flat_map(|it| &it.conditions).map(StatusCondition::from).collect(),
            containers: containers.into_iter().map(|it| StatusContainer::new(it, of(it))).collect(),
        }
    };
    sandboxes.into_iter().map(pod).collect()
}

/// Tells of each container that is not started again when it ends, why not.
pub(in crate::admin) fn annotate_not_restartable(pods: &mut [StatusPod], kept: &ClientPodsSnapshot) {
    for pod in pods {
        let [namespace, name, uid] = [&pod.namespace, &pod.name, &pod.uid].map(Clone::clone);
        let Some(key) = PodKey::from_pod_ref(&PodRef { id: None, namespace, name, uid }) else {
            continue;
        };
        for container in &mut pod.containers {
            container.not_restartable = kept.obstacle(&key, container.name.as_deref().unwrap_or_default());
        }
    }
}

/// The same, where pods are played: those as who plays them sees them, and first.
pub(in crate::admin) fn merge_managed(
    others: Vec<StatusPod>,
    played: &[PublishedPod],
    probed: &[PodReport],
) -> Vec<StatusPod> {
    let (mut beside, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|pod| played.iter().any(|published| pod.same_pod(published)));
    let mut all: Vec<StatusPod> = Vec::new();
    for status in played {
        let mut pod = StatusPod::played(status, probed);
        // Who plays it may not have everything that is there.
        let its = beside.iter_mut().filter(|other| other.same_pod(status) && other.id == pod.id);
        for container in its.flat_map(|other| std::mem::take(&mut other.containers)) {
            if pod.containers.iter().all(|known| known.name != container.name) {
                pod.containers.push(container);
            }
        }
        all.push(pod);
    }
    all.extend(others);
    all
}

impl StatusPod {
    fn same_pod(&self, published: &PublishedPod) -> bool {
        let (namespace, name) = published.names();
        let names = [&self.namespace, &self.name, &self.uid].map(Option::as_deref);
        names == [namespace, name, published.uid()].map(Some)
    }

    fn played(published: &PublishedPod, probed: &[PodReport]) -> Self {
        let (namespace, name) = published.names();
        let status = published.status();
        let report = probed.iter().find(|report| report.names.uid.as_deref() == Some(published.uid()));
        let has_sandbox = status.is_some_and(|status| status.is("PodReadyToStartContainers"));
        let conditions = status.into_iter().flat_map(|status| &status.conditions).flatten();
        let containers = status.into_iter().flat_map(PodStatusExt::containers);
        let Summary { ready, total, restarts, restarted, status_column } = published.summary();
        Self {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(published.uid().to_owned()),
            id: published.sandbox().unwrap_or_default().to_owned(),
            sandbox: if has_sandbox { "ready" } else { "stopped" }.to_owned(),
            ip: status.and_then(|status| status.pod_ip.clone()),
            source: "play".to_owned(),
            phase: status.and_then(|status| status.phase.clone()),
            status: Some(status_column),
            ready_containers: Some(ready),
            total_containers: Some(total),
            started: Some(time(published.started())),
            removed: published.removed().map(time),
            restarts: Some(restarts),
            restarted: restarted.map(|ended| ended.to_string()),
            ready: status.map(|status| status.is("Ready")),
            conditions: conditions.map(StatusCondition::from).collect(),
            containers: containers.map(|it| StatusContainer::played(it, report)).collect(),
        }
    }
}

impl StatusContainer {
    fn played(status: &corev1::ContainerStatus, report: Option<&PodReport>) -> Self {
        let id = status.container_id.as_deref().and_then(|id| id.rsplit('/').next()).unwrap_or_default();
        let report = report.and_then(|report| report.container(id));
        let (state, reason, message) = match (status.waiting(), status.terminated()) {
            (Some(waiting), _) => ("waiting", waiting.reason.clone(), waiting.message.clone()),
            (_, Some(ended)) => ("exited", ended.reason.clone(), ended.message.clone()),
            _ => (if status.running().is_some() { "running" } else { "unknown" }, None, None),
        };
        Self {
            name: Some(status.name.clone()),
            id: id.to_owned(),
            attempt: Some(status.restarts()).filter(|_| !id.is_empty()),
            restarts: Some(status.restarts()),
            state: state.to_owned(),
            exit_code: status.terminated().map(|ended| ended.exit_code),
            reason,
            message,
            not_restartable: None,
            started: Some(status.is_started()),
            ready: Some(status.ready),
            probes: report.into_iter().flat_map(|it| &it.probes).map(StatusProbe::from).collect(),
            source: "play".to_owned(),
        }
    }

    fn new(container: &inventory::Container, report: Option<&ContainerReport>) -> Self {
        let state = match container.state {
            ContainerState::ContainerCreated => "created",
            ContainerState::ContainerRunning => "running",
            ContainerState::ContainerExited => "exited",
            ContainerState::ContainerUnknown => "unknown",
        };
        let (exit_code, reason) = container.exit.clone().unzip();
        Self {
            name: container.container_ref.name.clone(),
            id: container.id.to_string(),
            attempt: container.container_ref.attempt,
            restarts: None,
            state: state.to_owned(),
            exit_code,
            reason: reason.filter(|reason| !reason.is_empty()),
            message: None,
            not_restartable: None,
            started: report.map(|report| report.is_started),
            ready: report.map(|report| report.is_ready),
            probes: report.into_iter().flat_map(|it| &it.probes).map(StatusProbe::from).collect(),
            source: container.source.name().to_owned(),
        }
    }
}

impl From<&PodCondition> for StatusCondition {
    fn from(condition: &PodCondition) -> Self {
        Self {
            r#type: condition.kind.to_owned(),
            status: if condition.is_met { "True" } else { "False" }.to_owned(),
            reason: condition.reason.map(str::to_owned),
            message: condition.message.clone(),
        }
    }
}

impl From<&corev1::PodCondition> for StatusCondition {
    fn from(condition: &corev1::PodCondition) -> Self {
        Self {
            r#type: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
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
