//! How a pod is in a few words, as `kubectl get pods` counts and words it.

use super::published_pod::{PublishedPod, WorkerPhase};
use super::v1::ContainerStatusV1;
use crate::manifest::ContainerKind;

/// What kubectl shows of a pod in a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many of its containers are ready, and how many there are; without those that only run first.
    pub ready: usize,
    /// See `ready`.
    pub total: usize,
    /// How often its containers have been restarted; once it is initialised without those that only run first.
    pub restarts: u32,
    /// When the last of those that were restarted had ended.
    pub restarted: Option<String>,
    /// How it is, in one word.
    pub status_column: String,
}

/// Restarts that are counted.
#[derive(Clone, Debug, Default)]
struct Restarts {
    count: u32,
    last: Option<String>,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatusV1) {
        self.count += container.restart_count;
        let ended = container.last_state.terminated.as_ref().map(|ended| ended.finished_at.clone());
        // Times are written so that they are in order.
        self.last = self.last.take().max(ended);
    }
}

impl PublishedPod {
    /// What kubectl would show of it.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let is_sidecar = |name: &str| {
            self.pod.container(name).is_some_and(|container| container.spec.role == ContainerKind::Sidecar)
        };
        let lasting =
            self.pod.containers.iter().filter(|container| container.spec.role != ContainerKind::Init);
        let mut summary =
            Summary { total: lasting.count(), status_column: "Pending".to_owned(), ..Summary::default() };
        let Some(status) = &self.status else { return summary };
        summary.status_column =
            if status.reason.is_empty() { status.phase.to_owned() } else { status.reason.clone() };
        let (mut restarts, mut of_sidecars) = (Restarts::default(), Restarts::default());
        let init = &status.init_container_statuses;
        let mut is_initialising = false;
        for (place, container) in init.iter().enumerate() {
            restarts.add(container);
            if is_sidecar(&container.name) {
                of_sidecars.add(container);
            }
            if container.state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0) {
                continue;
            }
            if is_sidecar(&container.name) && container.started {
                summary.ready += usize::from(container.ready);
                continue;
            }
            summary.status_column = match reason_of(container) {
                Some(reason) if reason != "PodInitializing" => format!("Init:{reason}"),
                _ => format!("Init:{place}/{}", init.len()),
            };
            is_initialising = true;
            break;
        }
        if !is_initialising || status.is("Initialized") {
            restarts = of_sidecars;
            let (mut has_running, mut error) = (false, None);
            for container in status.container_statuses.iter().rev() {
                restarts.add(container);
                if let Some(reason) = reason_of(container) {
                    summary.status_column = reason;
                    if container.state.terminated.as_ref().is_some_and(|ended| ended.exit_code != 0) {
                        error = Some(summary.status_column.clone());
                    }
                } else if container.ready && container.state.running.is_some() {
                    has_running = true;
                    summary.ready += 1;
                }
            }
            if summary.status_column == "Completed" {
                summary.status_column = match error {
                    _ if has_running && status.is("Ready") => "Running".to_owned(),
                    Some(error) => error,
                    None if has_running => "NotReady".to_owned(),
                    None => "Completed".to_owned(),
                };
            }
        }
        if self.phase != WorkerPhase::Syncing && !status.is_terminal() {
            "Terminating".clone_into(&mut summary.status_column);
        }
        (summary.restarts, summary.restarted) = (restarts.count, restarts.last);
        summary
    }
}

/// Why a container does not run, in one word.
fn reason_of(container: &ContainerStatusV1) -> Option<String> {
    let waits = container.state.waiting.as_ref().map(|waiting| waiting.reason.clone());
    let ended = container.state.terminated.as_ref().map(|ended| {
        if ended.reason.is_empty() { format!("ExitCode:{}", ended.exit_code) } else { ended.reason.clone() }
    });
    waits.or(ended).filter(|reason| !reason.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::SystemTime;

    use super::*;
    use crate::kubelet::v1::{ContainerState, PodStatus, PodStatusCondition, Running, Terminated};
    use crate::manifest::reader::tests::pod;

    fn status(name: &str, state: ContainerState, is_ready: bool) -> ContainerStatusV1 {
        ContainerStatusV1 {
            name: name.to_owned(),
            state,
            ready: is_ready,
            started: is_ready,
            ..Default::default()
        }
    }

    fn running() -> ContainerState {
        let running = Running { started_at: "2026-11-22T12:00:00Z".to_owned() };
        ContainerState { running: Some(running), ..ContainerState::default() }
    }

    fn ended(exit_code: i32) -> ContainerState {
        let reason = if exit_code == 0 { "Completed" } else { "Error" }.to_owned();
        let finished_at = "2026-11-22T12:00:09Z".to_owned();
        let ended = Terminated { exit_code, reason, finished_at, ..Terminated::default() };
        ContainerState { terminated: Some(ended), ..ContainerState::default() }
    }

    fn met(kind: &'static str) -> PodStatusCondition {
        let (status, last_transition_time) = ("True", String::new());
        let (last_probe_time, reason, message) = (None, None, None);
        PodStatusCondition { r#type: kind, status, last_probe_time, last_transition_time, reason, message }
    }

    /// Each as kubectl words it, with how many of how many containers are ready.
    #[test]
    fn pods_are_printed_like_kubectl_does() {
        let pod = pod(
            "{initContainers: [{name: first, image: i}, {name: side, image: i, restartPolicy: Always}], \
             containers: [{name: a, image: i}, {name: b, image: i}]}",
        );
        let waiting = |reason: &str| ContainerState::waiting(reason, "");
        let (initialised, ready) = (vec![met("Initialized")], vec![met("Initialized"), met("Ready")]);
        for (first, side, a, b, conditions, expected) in [
            (
                running(),
                waiting("PodInitializing"),
                waiting("PodInitializing"),
                waiting("PodInitializing"),
                vec![],
                (0, "Init:0/2"),
            ),
            (
                waiting("CrashLoopBackOff"),
                waiting(""),
                waiting(""),
                waiting(""),
                vec![],
                (0, "Init:CrashLoopBackOff"),
            ),
            (ended(3), waiting(""), waiting(""), waiting(""), vec![], (0, "Init:Error")),
            (ended(0), running(), running(), running(), ready.clone(), (3, "Running")),
            (ended(0), running(), ended(0), running(), initialised.clone(), (2, "NotReady")),
            (ended(0), running(), ended(0), ended(1), initialised.clone(), (1, "Error")),
            (
                ended(0),
                running(),
                waiting("CrashLoopBackOff"),
                running(),
                initialised.clone(),
                (2, "CrashLoopBackOff"),
            ),
            (ended(0), ended(0), ended(0), ended(0), initialised, (0, "Completed")),
        ] {
            let is_running = |state: &ContainerState| state.running.is_some();
            let of = |name: &str, state: ContainerState| {
                let is_ready = is_running(&state) && name != "first";
                status(name, state, is_ready)
            };
            let mut published = PublishedPod::new(Arc::new(pod.clone()), SystemTime::now());
            published.status = Some(PodStatus {
                phase: "Running",
                conditions,
                init_container_statuses: vec![of("first", first), of("side", side)],
                container_statuses: vec![of("a", a), of("b", b)],
                ..PodStatus::default()
            });
            let Summary { ready, total, status_column, .. } = published.summary();
            assert_eq!((ready, status_column.as_str()), expected, "{:?}", published.status);
            assert_eq!(total, 3);
        }
    }

    #[test]
    fn restarts_of_those_that_run_first_count_while_they_do() {
        let pod = pod("{initContainers: [{name: first, image: i}], containers: [{name: a, image: i}]}");
        let mut published = PublishedPod::new(Arc::new(pod), SystemTime::now());
        let first =
            ContainerStatusV1 { restart_count: 2, last_state: ended(1), ..status("first", running(), false) };
        let main =
            ContainerStatusV1 { restart_count: 1, ..status("a", ContainerState::waiting("", ""), false) };
        let status = PodStatus {
            phase: "Pending",
            init_container_statuses: vec![first],
            container_statuses: vec![main],
            ..PodStatus::default()
        };
        published.status = Some(status.clone());
        let summary = published.summary();
        assert_eq!((summary.restarts, summary.restarted.as_deref()), (2, Some("2026-11-22T12:00:09Z")));
        published.status = Some(PodStatus { conditions: vec![met("Initialized")], ..status });
        assert_eq!((published.summary().restarts, published.summary().restarted), (1, None));
    }
}
