//! Pods of the node in the API, with the results of their probes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as corev1;
use serde::{Deserialize, Serialize};

use crate::cri::error_cause;
use crate::cri::labels::{POD_NAME, POD_NAMESPACE, POD_UID};
use crate::cri::v1::ContainerState;
use crate::history::json::time;
use crate::inventory::{self, Inventory};
use crate::kubelet::{
    ClientPodsSnapshot, ContainerStatusExt as _, PodKey, PodStatusExt, PublishedPod, Summary,
};
use crate::object_ref::PodRef;
use crate::prober::{AttemptRun, ContainerReport, PodCondition, PodReport, ProbeReport, ProbeResult};

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
    /// Number of ready containers, including sidecars but no other init containers. Only for a
    /// managed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_containers: Option<usize>,
    /// Number of containers, including sidecars but no other init containers. Only for a managed
    /// pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// A probe of a container, with its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusProbe {
    /// Type of the probe: `startup`, `readiness` or `liveness`.
    pub r#type: String,
    /// Handler of the probe: `exec`, `httpGet`, `tcpSocket` or `grpc`.
    pub handler: String,
    /// Probe source.
    pub source: String,
    /// `error` if the last attempts errored; otherwise the result of the current result run,
    /// `success` or `failure`; null before the first attempt.
    ///
    /// The kubelet ignores attempts that error (`prober/worker.go`: `doProbe`), so they change
    /// neither `run` nor `verdict`: a liveness probe that errors each time keeps its initial
    /// verdict, `success`.
    pub result: Option<String>,
    /// Length of the result run.
    pub run: u32,
    /// Threshold of the result run.
    pub threshold: u32,
    /// Probe result: `success`, `failure` or `unknown`; null before the first result.
    pub verdict: Option<String>,
    /// Whether the probe is on hold: it makes no attempts until the container is replaced.
    pub on_hold: bool,
    /// Number of would-be kills of the container.
    pub would_have_killed: u32,
    /// Number of kills of containers of this name because of this probe.
    #[serde(default)]
    pub killed: u32,
    /// Number of attempts in a row that errored, each after three tries; 0 after an attempt with a
    /// result.
    #[serde(default)]
    pub errors: u32,
    /// Cause of the last of these errors, in a few words.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Message of the last of these errors.
    #[serde(default)]
    pub last_error_message: Option<String>,
    /// Time at which the first of the last attempts with equal results, or with errors, ended.
    /// Attempts in earlier containers do not count.
    #[serde(default)]
    pub since: Option<String>,
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
/// about its probes.
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
            containers: containers.into_iter().map(|it| StatusContainer::new(it, of(it))).collect(),
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

/// Merges managed pods into the pods of the inventory. Managed pods come first, in the state that
/// their pod workers report.
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
        // The inventory may have containers that the pod worker does not know.
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
            labels: published.labels().clone(),
            created: None,
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
        let attempts = report.attempts.as_ref();
        let error = attempts.and_then(AttemptRun::error);
        let result = error.map(|_| "error").or(report.run.last.map(ProbeResult::name));
        Self {
            r#type: report.probe_type.name().to_owned(),
            handler: report.probe.handler.name().to_owned(),
            source: report.probe.source.name().to_owned(),
            result: result.map(str::to_owned),
            run: report.run.length,
            threshold,
            verdict: report.result.map(|result| result.name().to_owned()),
            on_hold: report.on_hold,
            would_have_killed: report.would_have_killed,
            killed: report.killed,
            errors: attempts.filter(|_| error.is_some()).map_or(0, |attempts| attempts.length),
            last_error: error.map(error_cause).filter(|cause| !cause.is_empty()).map(str::to_owned),
            last_error_message: error.map(str::to_owned),
            since: attempts.map(|attempts| time(attempts.since)),
        }
    }
}
