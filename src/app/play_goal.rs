//! The condition that `play` waits for: whether it is met, and the reasons if it is not.

use k8s_openapi::api::core::v1::PodStatus;

use crate::config::Until;
use crate::kubelet::{ContainerStatusExt as _, Kubelet, PodStatusExt, PublishedPod, WorkloadStatus};
use crate::terminal::format;

/// State of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GoalState {
    /// The condition is met.
    Met,
    /// The condition can no longer be met, or pods have failed.
    Failed(String),
}

/// Waits until the condition is met, or can no longer be met. Returns `None` if the kubelet has
/// ended.
pub(super) async fn wait_for_goal(kubelet: &Kubelet, until: Option<Until>) -> Option<GoalState> {
    let mut changes = kubelet.changes();
    loop {
        changes.borrow_and_update();
        let published_pods = kubelet.published_pods();
        if let Some(state) = goal_state(&published_pods, &kubelet.workloads(), until) {
            return Some(state);
        }
        if kubelet.has_deleted_pods() && published_pods.iter().all(|published| published.removed().is_some())
        {
            return Some(match until {
                Some(_) => GoalState::Failed("all pods were deleted".to_owned()),
                None => GoalState::Met,
            });
        }
        changes.changed().await.ok()?;
    }
}

/// Returns the state of the condition if it is met, or can no longer be met.
fn goal_state(
    published_pods: &[PublishedPod],
    workloads: &[WorkloadStatus],
    until: Option<Until>,
) -> Option<GoalState> {
    let wanted: Vec<&PublishedPod> =
        published_pods.iter().filter(|published| !is_unimportant(published, workloads)).collect();
    let statuses: Vec<Option<&PodStatus>> = wanted.iter().map(|published| published.status()).collect();
    // A job that has failed may have no pods any more.
    let has_pods = !statuses.is_empty() || workloads.iter().any(|workload| workload.failure.is_some());
    let all = |is: fn(&PodStatus) -> bool| has_pods && statuses.iter().all(|status| status.is_some_and(is));
    let is_created = workloads.iter().all(|workload| workload.missing.is_empty());
    let is_complete = workloads.iter().all(|workload| workload.is_complete);
    let is_well = match until {
        Some(Until::Ready) => is_created && all(|status| status.is("Ready") || status.phase() == "Succeeded"),
        Some(Until::Succeeded) => is_complete && all(|status| status.phase() == "Succeeded"),
        Some(Until::Restarts(count)) => wanted.iter().any(|published| published.max_restarts() >= count),
        // Without a condition, `play` ends once all pods have ended.
        None => is_complete && all(PodStatusExt::is_terminal),
    };
    let failed_jobs = workloads.iter().filter_map(|workload| workload.failure.clone());
    let failed_pods = wanted.iter().filter(|published| published.has_failed()).map(|pod| failed(pod));
    let lost: Vec<String> = failed_jobs.chain(failed_pods).collect();
    if is_well {
        let is_enough = matches!(until, Some(Until::Ready | Until::Restarts(_))) || lost.is_empty();
        return Some(if is_enough { GoalState::Met } else { GoalState::Failed(lost.join("\n")) });
    }
    // Pods that have ended can no longer meet the condition.
    let is_vain = match until {
        Some(Until::Ready | Until::Succeeded) => !lost.is_empty(),
        Some(Until::Restarts(_)) => is_complete && all(PodStatusExt::is_terminal),
        None => false,
    };
    is_vain.then(|| {
        let reason = if lost.is_empty() { "all pods have ended".to_owned() } else { lost.join("\n") };
        GoalState::Failed(reason)
    })
}

/// Returns whether a pod does not count: its manifest was removed, or it has failed and its job
/// replaces it.
fn is_unimportant(published: &PublishedPod, workloads: &[WorkloadStatus]) -> bool {
    let is_of_running_job =
        |workload: &WorkloadStatus| workload.failure.is_none() && workload.job_pods.contains(published.uid());
    published.is_unwanted() || published.has_failed() && workloads.iter().any(is_of_running_job)
}

/// Returns the error message of a failed pod.
fn failed(published: &PublishedPod) -> String {
    let (namespace, name) = published.names();
    let containers = published.status().into_iter().flat_map(PodStatusExt::containers);
    let ended = containers.filter_map(|container| {
        let ended = container.terminated().filter(|ended| ended.exit_code != 0)?;
        let reason = ended.reason.as_deref().unwrap_or_default();
        Some(format!("{} exited with code {} ({reason})", container.name, ended.exit_code))
    });
    let ended: Vec<String> = ended.collect();
    let cause = published.status().and_then(|status| {
        let parts = [status.reason.as_deref()?, status.message.as_deref().unwrap_or_default()];
        Some(parts.join(": ").trim_end_matches(": ").to_owned())
    });
    let killed = || "a container was killed and is not restarted".to_owned();
    let why = if ended.is_empty() { cause.unwrap_or_else(killed) } else { ended.join(", ") };
    format!("pod {namespace}/{name} has failed: {why}")
}

/// Returns the part of the condition that is not met yet.
pub(super) fn pending_goals(kubelet: &Kubelet, until: Option<Until>) -> String {
    let (mut published_pods, workloads) = (kubelet.published_pods(), kubelet.workloads());
    published_pods.retain(|published| !is_unimportant(published, &workloads));
    let missing: Vec<&String> = workloads.iter().flat_map(|workload| &workload.missing).collect();
    if published_pods.is_empty() && missing.is_empty() {
        return "there are no pods".to_owned();
    }
    let of = |is: fn(&PodStatus) -> bool| -> String {
        let others = published_pods.iter().filter(|published| !published.status().is_some_and(is));
        let missing = missing.iter().map(|name| format!("{name} (not created yet)"));
        let names: Vec<String> = others
            .map(|published| {
                let (namespace, name) = published.names();
                let gates = published.status().filter(|_| matches!(until, Some(Until::Ready)));
                let gates = gates.and_then(unmet_gates).map(|gates| format!("; {gates}"));
                let state = published.summary().status_column;
                format!("{namespace}/{name} ({state}{})", gates.unwrap_or_default())
            })
            .chain(missing)
            .collect();
        names.join(", ")
    };
    match until {
        Some(Until::Ready) => format!("not ready: {}", of(|status| status.is("Ready"))),
        Some(Until::Succeeded) => format!("not succeeded: {}", of(|status| status.phase() == "Succeeded")),
        Some(Until::Restarts(count)) => {
            format!("no container has been restarted {}", format::times(count.into()))
        }
        None => format!("not ended: {}", of(PodStatusExt::is_terminal)),
    }
}

/// Returns the reason why a pod is not ready although its containers are.
fn unmet_gates(status: &PodStatus) -> Option<&str> {
    let mut conditions = status.conditions.iter().flatten().filter(|_| status.is("ContainersReady"));
    conditions.find(|condition| condition.type_ == "Ready")?.message.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_with_ready_containers_may_be_not_ready_because_of_its_gates() {
        for (containers_ready, expected) in [("True", Some("no gate")), ("False", None)] {
            let status: PodStatus = serde_json::from_value(serde_json::json!({"conditions": [
                {"type": "Ready", "status": "False", "message": "no gate"},
                {"type": "ContainersReady", "status": containers_ready},
            ]}))
            .unwrap();
            assert_eq!(unmet_gates(&status), expected, "{containers_ready}");
        }
    }
}
