//! Summary of a pod as in `kubectl get pods` (`pkg/printers/internalversion/printers.go`:
//! `printPod`).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerStatus;

use super::pod_status::{ContainerStatusExt as _, PodStatusExt as _};
use super::published_pod::{PublishedPod, WorkerPhase};
use crate::manifest::ContainerKind;

/// Columns of `kubectl get pods`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of ready containers and sidecars.
    pub ready: usize,
    /// Number of containers and sidecars.
    pub total: usize,
    /// Number of restarts of the containers. Once the pod is initialized, those of init containers
    /// other than sidecars do not count.
    pub restarts: u32,
    /// Time at which the last restarted container had ended.
    pub restarted: Option<Timestamp>,
    /// Text of the column STATUS, such as `Running` or `CrashLoopBackOff`.
    pub status_column: String,
}

/// Sum of restarts, and the time of the last one.
#[derive(Clone, Debug, Default)]
struct Restarts {
    count: u32,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatus) {
        self.count += container.restarts();
        let ended = container.last_terminated().and_then(|ended| ended.finished_at.as_ref());
        self.last = self.last.max(ended.map(|ended| ended.0));
    }
}

impl PublishedPod {
    /// Returns the columns that kubectl would print for the pod.
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
        status.reason.as_deref().unwrap_or(status.phase()).clone_into(&mut summary.status_column);
        let (mut restarts, mut of_sidecars) = (Restarts::default(), Restarts::default());
        let init = status.init_container_statuses.as_deref().unwrap_or_default();
        let mut is_initialising = false;
        for (place, container) in init.iter().enumerate() {
            restarts.add(container);
            if is_sidecar(&container.name) {
                of_sidecars.add(container);
            }
            if container.terminated().is_some_and(|ended| ended.exit_code == 0) {
                continue;
            }
            if is_sidecar(&container.name) && container.is_started() {
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
            for container in status.container_statuses.iter().flatten().rev() {
                restarts.add(container);
                if let Some(reason) = reason_of(container) {
                    summary.status_column = reason;
                    if container.terminated().is_some_and(|ended| ended.exit_code != 0) {
                        error = Some(summary.status_column.clone());
                    }
                } else if container.ready && container.running().is_some() {
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

/// Returns why a container does not run, in one word; `None` if it runs.
fn reason_of(container: &ContainerStatus) -> Option<String> {
    if let Some(waiting) = container.waiting() {
        return waiting.reason.clone();
    }
    let ended = container.terminated()?;
    Some(ended.reason.clone().unwrap_or_else(|| format!("ExitCode:{}", ended.exit_code)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::SystemTime;

    use k8s_openapi::api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, PodCondition, PodStatus,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::kubelet::pod_status::waiting_state;
    use crate::manifest::reader::tests::pod;

    const FINISHED: &str = "2026-11-22T12:00:09Z";

    fn status(name: &str, state: ContainerState, is_ready: bool) -> ContainerStatus {
        ContainerStatus {
            name: name.to_owned(),
            state: Some(state),
            ready: is_ready,
            started: Some(is_ready),
            ..Default::default()
        }
    }

    fn running() -> ContainerState {
        ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() }
    }

    fn ended(exit_code: i32) -> ContainerState {
        let reason = Some(if exit_code == 0 { "Completed" } else { "Error" }.to_owned());
        let finished_at = Some(Time(FINISHED.parse().unwrap()));
        let ended = ContainerStateTerminated {
            exit_code,
            reason,
            finished_at,
            ..ContainerStateTerminated::default()
        };
        ContainerState { terminated: Some(ended), ..ContainerState::default() }
    }

    fn met(kind: &str) -> PodCondition {
        PodCondition { type_: kind.to_owned(), status: "True".to_owned(), ..PodCondition::default() }
    }

    /// Each case has the expected number of ready containers and the STATUS column.
    #[test]
    fn pods_are_printed_like_kubectl_does() {
        let pod = pod(
            "{initContainers: [{name: first, image: i}, {name: side, image: i, restartPolicy: Always}], \
             containers: [{name: a, image: i}, {name: b, image: i}]}",
        );
        let waiting = |reason: &str| waiting_state(reason, "");
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
                phase: Some("Running".to_owned()),
                conditions: Some(conditions),
                init_container_statuses: Some(vec![of("first", first), of("side", side)]),
                container_statuses: Some(vec![of("a", a), of("b", b)]),
                ..PodStatus::default()
            });
            let Summary { ready, total, status_column, .. } = published.summary();
            assert_eq!((ready, status_column.as_str()), expected, "{:?}", published.status);
            assert_eq!(total, 3);
        }
    }

    #[test]
    fn restarts_of_init_containers_count_while_they_run() {
        let pod = pod("{initContainers: [{name: first, image: i}], containers: [{name: a, image: i}]}");
        let mut published = PublishedPod::new(Arc::new(pod), SystemTime::now());
        let first = ContainerStatus {
            restart_count: 2,
            last_state: Some(ended(1)),
            ..status("first", running(), false)
        };
        let main = ContainerStatus { restart_count: 1, ..status("a", waiting_state("", ""), false) };
        let status = PodStatus {
            phase: Some("Pending".to_owned()),
            init_container_statuses: Some(vec![first]),
            container_statuses: Some(vec![main]),
            ..PodStatus::default()
        };
        published.status = Some(status.clone());
        let summary = published.summary();
        assert_eq!((summary.restarts, summary.restarted), (2, FINISHED.parse().ok()));
        published.status = Some(PodStatus { conditions: Some(vec![met("Initialized")]), ..status });
        assert_eq!((published.summary().restarts, published.summary().restarted), (1, None));
    }
}
