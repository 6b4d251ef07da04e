//! Pods of the built-in kubelet in the API, in the state that their pod workers report.

use k8s_openapi::api::core::v1 as corev1;

use super::pods::{StatusCondition, StatusContainer, StatusPod};
use super::probe::StatusProbe;
use crate::history::json::time;
use crate::kubelet::{ContainerStatusExt as _, PodStatusExt, PublishedPod, Summary};
use crate::prober::PodReport;

/// Merges managed pods into the pods of the inventory. Managed pods come first, in the state that
/// their pod workers report. `redact` hides arguments of commands.
pub(in crate::admin) fn merge_managed(
    others: Vec<StatusPod>,
    played: &[PublishedPod],
    probed: &[PodReport],
    redact: bool,
) -> Vec<StatusPod> {
    let (mut beside, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|pod| played.iter().any(|published| pod.same_pod(published)));
    let mut all: Vec<StatusPod> = Vec::new();
    for status in played {
        let mut pod = StatusPod::played(status, probed, redact);
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
    /// Returns the state of the sandbox; `None` if the pod has none.
    pub(crate) fn sandbox_state(&self) -> Option<&str> {
        (!self.id.is_empty()).then_some(&self.sandbox)
    }

    fn same_pod(&self, published: &PublishedPod) -> bool {
        let (namespace, name) = published.names();
        let names = [&self.namespace, &self.name, &self.uid].map(Option::as_deref);
        names == [namespace, name, published.uid()].map(Some)
    }

    fn played(published: &PublishedPod, probed: &[PodReport], redact: bool) -> Self {
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
            message: status.and_then(|status| status.message.clone()),
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
            containers: containers.map(|it| StatusContainer::played(it, published, report, redact)).collect(),
        }
    }
}

impl StatusContainer {
    fn played(
        status: &corev1::ContainerStatus,
        published: &PublishedPod,
        report: Option<&PodReport>,
        redact: bool,
    ) -> Self {
        let id = status.runtime_id().unwrap_or_default();
        let report = report.and_then(|report| report.container(id));
        let (state, reason, message) = match (status.waiting(), status.terminated()) {
            (Some(waiting), _) => ("waiting", waiting.reason.clone(), waiting.message.clone()),
            (_, Some(ended)) => ("exited", ended.reason.clone(), ended.message.clone()),
            _ => (if status.running().is_some() { "running" } else { "unknown" }, None, None),
        };
        Self {
            name: Some(status.name.clone()),
            id: id.to_owned(),
            attempt: published.attempt(id),
            restarts: Some(status.restarts()),
            state: state.to_owned(),
            exit_code: status.terminated().map(|ended| ended.exit_code),
            reason,
            message,
            not_restartable: None,
            started: Some(status.is_started()),
            ready: Some(status.ready),
            probes: report
                .into_iter()
                .flat_map(|it| &it.probes)
                .map(|it| StatusProbe::new(it, redact))
                .collect(),
            source: "play".to_owned(),
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
