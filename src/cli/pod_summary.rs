//! Columns of `kubectl get pods` for a pod on the node (`pkg/printers/internalversion/printers.go`:
//! `printPod`). Those of a managed pod come from its pod worker. Those of another pod follow from
//! its sandboxes and containers; facts that only a kubelet has are shown as unknown.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;

use crate::admin::api::{StatusContainer, StatusPod};
use crate::terminal::format;

/// Text for a time that is not known, as in kubectl.
const UNKNOWN: &str = "<unknown>";

/// Text for a value that does not exist, as in kubectl.
pub(super) const NONE: &str = "<none>";

/// The columns of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodSummary {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Number of ready containers and number of containers, such as `1/2`. `?/2` if it is not known
    /// whether they are ready.
    pub(super) ready: String,
    pub(super) status: String,
    pub(super) restarts: String,
    pub(super) age: String,
    pub(super) ip: String,
    /// Id of the newest sandbox.
    pub(super) sandbox: String,
    /// State of the newest sandbox.
    pub(super) sandbox_state: String,
    /// Containers with their states.
    pub(super) containers: String,
}

/// Groups the sandboxes of the status by their pods. The newest sandbox of each pod comes last.
pub(super) fn by_pod<'a>(sandboxes: &[&'a StatusPod]) -> Vec<Vec<&'a StatusPod>> {
    let mut pods: Vec<Vec<&StatusPod>> = Vec::new();
    for sandbox in sandboxes {
        let is_same = |pod: &&mut Vec<&StatusPod>| {
            pod.first().is_some_and(|first| {
                sandbox.name.is_some()
                    && (&first.namespace, &first.name, &first.uid)
                        == (&sandbox.namespace, &sandbox.name, &sandbox.uid)
            })
        };
        match pods.iter_mut().find(is_same) {
            Some(pod) => pod.push(sandbox),
            None => pods.push(vec![sandbox]),
        }
    }
    pods
}

impl PodSummary {
    /// Returns the columns of a pod with these sandboxes, the newest last.
    pub(super) fn new(sandboxes: &[&StatusPod], now: Timestamp) -> Option<Self> {
        let pod = sandboxes.last()?;
        let containers = newest_containers(sandboxes);
        let is_managed = pod.status.is_some();
        let created = pod.started.as_ref().or(sandboxes.iter().find_map(|pod| pod.created.as_ref()));
        let status = pod.status.clone().unwrap_or_else(|| status_column(pod, &containers));
        let removed = if pod.removed.is_some() { " (removed)" } else { "" };
        let container_states: Vec<String> = containers.iter().map(|it| state(it)).collect();
        Some(Self {
            namespace: pod.namespace.clone().unwrap_or_default(),
            name: pod.name.clone().unwrap_or_else(|| pod.id.clone()),
            ready: if is_managed { managed_ready(pod) } else { ready(&containers) },
            status: status + removed,
            restarts: if is_managed { managed_restarts(pod, now) } else { restarts(&containers) },
            age: created.map_or_else(|| UNKNOWN.to_owned(), |created| format::age(created, now)),
            ip: pod.ip.clone().unwrap_or_else(|| NONE.to_owned()),
            sandbox: pod.sandbox_state().map_or(NONE, |_| &pod.id).to_owned(),
            sandbox_state: pod.sandbox_state().unwrap_or(NONE).to_owned(),
            containers: container_states.join(", "),
        })
    }

    /// Returns the style of the column STATUS.
    pub(super) fn style(&self) -> Style {
        let word = self.status.trim_end_matches(" (removed)");
        let is_well = matches!(word, "Running" | "Completed" | "Succeeded");
        if is_well { Style::new() } else { AnsiColor::Yellow.on_default() }
    }

    /// Returns whether the pod needs attention. A pod that is being terminated or was removed does
    /// not.
    pub(super) fn is_unwell(&self) -> bool {
        let is_over = self.status == "Terminating" || self.status.ends_with(" (removed)");
        !is_over && self.style() != Style::new()
    }

    /// Returns the columns without the times that pass, to detect changes.
    pub(super) fn without_times(&self) -> Self {
        let restarts = self.restarts.split(' ').next().unwrap_or_default().to_owned();
        Self { age: String::new(), restarts, ..self.clone() }
    }
}

/// Returns the newest container of each name.
pub(super) fn newest_containers<'a>(sandboxes: &[&'a StatusPod]) -> Vec<&'a StatusContainer> {
    let mut newest: Vec<&StatusContainer> = Vec::new();
    for container in sandboxes.iter().flat_map(|pod| &pod.containers) {
        let is_same = |known: &&mut &StatusContainer| known.name.is_some() && known.name == container.name;
        match newest.iter_mut().find(is_same) {
            Some(known) => *known = container,
            None => newest.push(container),
        }
    }
    newest
}

/// Returns the state of a container with its name, exit code and reason.
fn state(container: &StatusContainer) -> String {
    let name = container.name.as_deref().unwrap_or(&container.id);
    let state = &container.state;
    match (&container.exit_code, &container.reason) {
        (Some(code), Some(reason)) => format!("{name} {state} {code} ({reason})"),
        (Some(code), None) => format!("{name} {state} {code}"),
        (None, Some(reason)) => format!("{name} {state} ({reason})"),
        _ => format!("{name} {state}"),
    }
}

fn managed_ready(pod: &StatusPod) -> String {
    format!("{}/{}", pod.ready_containers.unwrap_or(0), pod.total_containers.unwrap_or(0))
}

fn managed_restarts(pod: &StatusPod, now: Timestamp) -> String {
    let ago = pod.restarted.as_deref().map(|ended| format!(" ({} ago)", format::age(ended, now)));
    format!("{}{}", pod.restarts.unwrap_or(0), ago.unwrap_or_default())
}

/// Returns the number of ready containers. Only a prober knows whether a container that runs is
/// ready.
fn ready(containers: &[&StatusContainer]) -> String {
    let is_unknown = |container: &&&StatusContainer| is_running(container) && container.ready.is_none();
    let ready = if containers.iter().any(|container| is_unknown(&container)) {
        "?".to_owned()
    } else {
        let ready = containers.iter().filter(|it| is_running(it) && it.ready == Some(true));
        ready.count().to_string()
    };
    format!("{ready}/{}", containers.len())
}

/// Returns the number of restarts: a kubelet counts them in the attempts of the CRI.
fn restarts(containers: &[&StatusContainer]) -> String {
    let attempts: Option<Vec<u32>> = containers.iter().map(|container| container.attempt).collect();
    attempts.map_or_else(|| UNKNOWN.to_owned(), |attempts| attempts.iter().sum::<u32>().to_string())
}

/// Returns the column STATUS of a pod that is not managed. A back-off is not known.
fn status_column(pod: &StatusPod, containers: &[&StatusContainer]) -> String {
    let running = containers.iter().filter(|container| is_running(container)).count();
    let failed = containers.iter().find(|it| it.state == "exited" && it.exit_code != Some(0));
    if let Some(failed) = failed {
        return reason(failed);
    }
    if containers.iter().any(|container| container.state == "unknown") {
        return "Unknown".to_owned();
    }
    let has_ended = containers.iter().any(|container| container.state == "exited");
    let status = match (running, pod.sandbox.as_str()) {
        (1.., _) if has_ended && pod.ready == Some(false) => "NotReady",
        (1.., _) => "Running",
        (0, "ready") if containers.is_empty() => "Pending",
        (0, _) if containers.iter().any(|container| container.state == "created") => "ContainerCreating",
        (0, _) if has_ended => "Completed",
        // The word of crictl for a sandbox that has stopped.
        (0, _) => "NotReady",
    };
    status.to_owned()
}

/// Returns the reason of the end of a container.
fn reason(container: &StatusContainer) -> String {
    match (&container.reason, container.exit_code) {
        (Some(reason), _) => reason.clone(),
        (None, Some(code)) => format!("ExitCode:{code}"),
        (None, None) => "Unknown".to_owned(),
    }
}

fn is_running(container: &StatusContainer) -> bool {
    container.state == "running"
}
