//! Pods of the node in the API, with the results of their probes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::probe::StatusProbe;
use crate::cri::labels::{POD_NAME, POD_NAMESPACE, POD_UID};
use crate::cri::v1::ContainerState;
use crate::inventory::{self, Inventory};
use crate::kubelet::{ClientPodsSnapshot, PodKey};
use crate::object_ref::PodRef;
use crate::prober::{ContainerReport, PodCondition, PodReport};

/// A pod of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPod {
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Name of the pod.
    pub name: Option<String>,
    /// Uid of the pod.
    pub uid: Option<String>,
    /// Id of the sandbox.
    pub id: String,
    /// State of the sandbox: `ready` or `stopped`.
    pub sandbox: String,
    /// First IP address of the pod.
    pub ip: Option<String>,
    /// Origin of the latest change: `call`, `event`, `list` or `inspect`. `play` for a managed pod.
    pub source: String,
    /// Pod phase: `Pending`, `Running`, `Succeeded` or `Failed`. Only for a probed or managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Text of kubectl's column STATUS. Only for a managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Message about the pod as a whole, such as the reason why the node did not admit it. Only for
    /// a managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of ready containers, including sidecars but no other init containers. Only for a
    /// managed pod.
    #[serde(rename = "readyContainers", default, skip_serializing_if = "Option::is_none")]
    pub ready_containers: Option<usize>,
    /// Number of containers, including sidecars but no other init containers. Only for a managed
    /// pod.
    #[serde(rename = "totalContainers", default, skip_serializing_if = "Option::is_none")]
    pub total_containers: Option<usize>,
    /// Labels of the pod, without those that the kubelet adds to sandboxes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Time of creation of the sandbox, once a list or a status has reported it. Not for a managed
    /// pod, which has `started`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Start time of the pod. Only for a managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Time at which the last part of the pod was removed. Only for a managed pod, which is shown
    /// for five minutes after its removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
    /// Number of restarts of the pod's containers. Once the pod is initialized, those of init
    /// containers other than sidecars do not count. Only for a managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// Time at which the last restarted container had ended. Only for a managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted: Option<String>,
    /// Whether the pod is ready. Only for a probed or managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Conditions of the pod. A managed pod has all; one that is only probed has `ContainersReady`
    /// and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
    /// Containers of the pod, in the order in which they were created.
    pub containers: Vec<StatusContainer>,
}

/// A pod condition, as in the API of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Type of the condition.
    pub r#type: String,
    /// Status of the condition: `True` or `False`.
    pub status: String,
    /// Reason of the status, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Reason of the status, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A container of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusContainer {
    /// Name of the container.
    pub name: Option<String>,
    /// Id of the container.
    pub id: String,
    /// Attempt in the container's CRI metadata.
    pub attempt: Option<u32>,
    /// Restart count. Only in a managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// State of the container: `created`, `running`, `exited` or `unknown`; in a managed pod
    /// `waiting`, `running`, `exited` or `unknown`.
    pub state: String,
    /// Exit code of an exited container, if it is known.
    pub exit_code: Option<i32>,
    /// Reason of the state, from the runtime for an exited container, from the built-in kubelet for
    /// a waiting one.
    pub reason: Option<String>,
    /// Message of the state. Only in a managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Reason why a client's container is not restarted when it ends. Only with `--enforce
    /// restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restartable: Option<String>,
    /// Whether the container has started. Only in a probed or managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// Whether the container is ready. Only in a probed or managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Probes of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<StatusProbe>,
    /// Origin of the latest change: `call`, `event`, `list` or `inspect`. `play` in a managed pod.
    pub source: String,
}

/// Returns the pods of an inventory by namespace and name, each with its containers and the reports
/// about its probes. `redact` hides arguments of commands.
pub(in crate::admin) fn pods(inventory: &Inventory, probed: &[PodReport], redact: bool) -> Vec<StatusPod> {
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
            message: None,
            labels: pod_labels(sandbox),
            created: nanoseconds(sandbox.created_at),
            started: None,
            ready_containers: None,
            total_containers: None,
            restarts: None,
            removed: None,
            restarted: None,
            ready: report.map(|report| report.conditions.iter().all(|condition| condition.is_met)),
            conditions: report.into_iter().flat_map(|it| &it.conditions).map(StatusCondition::from).collect(),
            containers: containers.into_iter().map(|it| StatusContainer::new(it, of(it), redact)).collect(),
        }
    };
    sandboxes.into_iter().map(pod).collect()
}

/// Returns the labels of a sandbox's pod.
fn pod_labels(sandbox: &inventory::Sandbox) -> BTreeMap<String, String> {
    let labels = sandbox.labels.iter().filter(|(key, _)| ![POD_NAME, POD_NAMESPACE, POD_UID].contains(key));
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Formats a time in nanoseconds since 1970; `None` if it is unknown.
fn nanoseconds(time: i64) -> Option<String> {
    let known = Timestamp::from_nanosecond(time.into()).ok().filter(|_| time > 0)?;
    Some(format!("{known:.3}"))
}

/// Sets the reason of each container that is not restarted when it ends.
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

impl StatusContainer {
    fn new(container: &inventory::Container, report: Option<&ContainerReport>, redact: bool) -> Self {
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
            probes: report
                .into_iter()
                .flat_map(|it| &it.probes)
                .map(|it| StatusProbe::new(it, redact))
                .collect(),
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
