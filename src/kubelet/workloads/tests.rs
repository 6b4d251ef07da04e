//! Tests of the controllers: which pods exist, by the states of the pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use tokio::time::Instant;

use super::controller::Controller;
use super::slot::{PodState, backoff};
use crate::manifest::WorkloadSpec;
use crate::manifest::pod::Pod;
use crate::manifest::reader::tests::pod_set;

/// A controller, and the states of its pods by their names.
struct Scenario {
    controller: Controller,
    states: BTreeMap<String, PodState>,
    now: Instant,
}

/// Returns a workload with additional fields of both specs.
fn workload(kind: &str, of_workload: &str, of_pod: &str) -> Arc<WorkloadSpec> {
    let text = format!(
        "{{kind: {kind}, metadata: {{name: w, namespace: test}}, spec: {{{of_workload} \
         template: {{spec: {{{of_pod} containers: [{{name: main, image: i}}]}}}}}}}}"
    );
    pod_set(&text).unwrap().workloads.remove(0)
}

impl Scenario {
    fn new(workload: Arc<WorkloadSpec>) -> Self {
        let mut scenario = Self {
            controller: Controller::new(workload, &|_| false),
            states: BTreeMap::new(),
            now: Instant::now(),
        };
        scenario.update();
        scenario
    }

    fn update(&mut self) -> bool {
        let state = |pod: &Arc<Pod>| self.states.get(&pod.name).copied().unwrap_or_default();
        self.controller.update(&state, self.now)
    }

    /// Sets the state of a pod, and returns the names of the pods that exist then.
    fn set(&mut self, name: &str, state: PodState) -> Vec<String> {
        self.states.insert(name.to_owned(), state);
        self.update();
        self.names()
    }

    fn names(&self) -> Vec<String> {
        self.controller.pods().map(|pod| pod.name.clone()).collect()
    }

    /// Advances the clock to the next update that the controller asks for.
    fn advance(&mut self) -> Duration {
        let next = self.controller.next().unwrap();
        let duration = next - self.now;
        self.now = next;
        assert!(self.update());
        duration
    }
}

fn phase(phase: &str) -> PodState {
    PodState::of(&PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() })
}

fn running() -> PodState {
    PodState { is_ready: true, ..phase("Running") }
}

fn deleted() -> PodState {
    PodState { is_deleted: true, ..running() }
}

#[test]
fn a_stateful_set_creates_the_next_pod_when_all_before_are_ready() {
    let mut scenario = Scenario::new(workload("StatefulSet", "replicas: 3, ordinals: {start: 4},", ""));
    assert_eq!(scenario.names(), ["w-4"]);
    assert_eq!(scenario.controller.status().missing, ["test/w-5", "test/w-6"]);
    assert_eq!(scenario.set("w-4", phase("Running")), ["w-4"]);
    assert_eq!(scenario.set("w-4", running()), ["w-4", "w-5"]);
    // Existing pods stay when an earlier one is no longer ready.
    assert_eq!(scenario.set("w-4", phase("Running")), ["w-4", "w-5"]);
    assert_eq!(scenario.set("w-5", running()), ["w-4", "w-5"]);
    assert!(!scenario.controller.status().is_complete);
    assert_eq!(scenario.set("w-4", running()), ["w-4", "w-5", "w-6"]);
    assert!(scenario.controller.status().is_complete);
    let before: Vec<String> = scenario.controller.pods().map(|pod| pod.uid.clone()).collect();
    assert_eq!(scenario.set("w-5", deleted()), ["w-4", "w-5", "w-6"]);
    let after: Vec<String> = scenario.controller.pods().map(|pod| pod.uid.clone()).collect();
    let is_same: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before == after).collect();
    assert_eq!(is_same, [true, false, true], "a deleted pod comes back as another one of the same name");
    let parallel = Scenario::new(workload("StatefulSet", "replicas: 2, podManagementPolicy: Parallel,", ""));
    assert_eq!(parallel.names(), ["w-0", "w-1"]);
}

#[test]
fn a_replica_that_has_ended_is_replaced_after_a_back_off_that_doubles() {
    let mut scenario = Scenario::new(workload("ReplicaSet", "replicas: 2,", ""));
    let first = scenario.names();
    assert_eq!(first.len(), 2);
    assert_eq!(scenario.set(&first[0], phase("Failed")), first);
    assert_eq!(scenario.advance(), Duration::from_secs(10));
    let second = scenario.names();
    assert!(second[0] != first[0] && second[1] == first[1], "{first:?} {second:?}");
    scenario.set(&second[0], phase("Failed"));
    assert_eq!(scenario.advance(), Duration::from_secs(20));
    assert_eq!([backoff(5), backoff(6), backoff(40)].map(|delay| delay.as_secs()), [320, 600, 600]);
}

#[test]
fn pods_of_an_earlier_process_are_continued() {
    let workload = workload("Deployment", "replicas: 2,", "");
    let mut scenario = Scenario::new(workload.clone());
    let first = scenario.names();
    let second = scenario.set(&first[1], deleted());
    let known: Vec<String> = scenario.controller.pods().map(|pod| pod.uid.clone()).collect();
    let restored = Controller::new(workload, &|uid| known.iter().any(|known| known == uid));
    assert_eq!(restored.pods().map(|pod| pod.name.clone()).collect::<Vec<_>>(), second);
}

#[test]
fn a_change_of_the_number_of_pods_keeps_pods_and_a_change_of_the_template_does_not() {
    let mut scenario = Scenario::new(workload("Deployment", "replicas: 3,", ""));
    let names = scenario.names();
    let fewer = workload("Deployment", "replicas: 2,", "");
    assert!(scenario.controller.continues(&fewer));
    assert!(!scenario.controller.continues(&workload("Deployment", "replicas: 2,", "hostPID: true,")));
    assert!(!scenario.controller.continues(&workload("ReplicaSet", "replicas: 2,", "")));
    scenario.controller = scenario.controller.scaled(fewer);
    scenario.update();
    assert_eq!(scenario.names(), names[..2]);
}

#[test]
fn a_job_runs_at_most_its_parallelism_until_its_completions() {
    let job = workload("Job", "completions: 3, parallelism: 2,", "restartPolicy: Never,");
    let mut scenario = Scenario::new(job);
    let first = scenario.names();
    assert_eq!(first.len(), 2);
    assert_eq!(scenario.set(&first[0], running()).len(), 2);
    let names = scenario.set(&first[0], phase("Succeeded"));
    assert_eq!(names.len(), 3, "the pod that has succeeded stays");
    scenario.set(&names[1], phase("Succeeded"));
    assert!(!scenario.controller.status().is_complete);
    assert_eq!(scenario.set(&names[2], phase("Succeeded")), names);
    assert!(scenario.controller.status().is_complete);
    assert_eq!(scenario.controller.status().job_pods.len(), 3);
}

#[test]
fn a_job_replaces_failed_pods_after_its_back_off_up_to_its_limit() {
    let mut scenario = Scenario::new(workload("Job", "backoffLimit: 1,", "restartPolicy: Never,"));
    let first = scenario.names();
    assert_eq!(scenario.set(&first[0], phase("Failed")), first);
    assert_eq!(scenario.controller.status().missing.len(), 1);
    assert_eq!(scenario.advance(), Duration::from_secs(10));
    let both = scenario.names();
    assert_eq!((both.len(), &both[0]), (2, &first[0]), "the failed pod stays, for its logs");
    assert_eq!(scenario.set(&both[1], phase("Failed")), both);
    let status = scenario.controller.status();
    let message = "Job test/w has failed: BackoffLimitExceeded: Job has reached the specified backoff limit";
    assert_eq!((status.failure.as_deref(), status.is_complete), (Some(message), true));
    assert_eq!(scenario.controller.next(), None);
}

#[test]
fn the_back_off_of_a_job_doubles_until_a_pod_succeeds() {
    let mut scenario = Scenario::new(workload("Job", "completions: 2,", "restartPolicy: Never,"));
    let newest = |scenario: &Scenario| scenario.names().pop().unwrap();
    let fail = |scenario: &mut Scenario| {
        let name = newest(scenario);
        scenario.set(&name, phase("Failed"));
        scenario.advance().as_secs()
    };
    assert_eq!([fail(&mut scenario), fail(&mut scenario)], [10, 20]);
    let name = newest(&scenario);
    scenario.set(&name, phase("Succeeded"));
    assert_eq!(fail(&mut scenario), 10);
}

#[test]
fn a_job_with_restarted_containers_fails_when_their_restarts_reach_its_limit() {
    let restarted = |restarts| PodState { restarts, ..running() };
    for (limit, kept, failed) in [(0, 0, 1), (2, 1, 2)] {
        let job = workload("Job", &format!("backoffLimit: {limit},"), "restartPolicy: OnFailure,");
        let mut scenario = Scenario::new(job);
        let names = scenario.names();
        assert_eq!(scenario.set(&names[0], restarted(kept)), names);
        assert_eq!(scenario.set(&names[0], restarted(failed)), Vec::<String>::new());
        assert!(scenario.controller.status().failure.is_some());
    }
}

#[test]
fn a_job_without_completions_is_complete_when_one_pod_has_succeeded_and_all_have_ended() {
    let mut scenario = Scenario::new(workload("Job", "parallelism: 2,", "restartPolicy: Never,"));
    let names = scenario.names();
    assert_eq!(scenario.set(&names[0], phase("Succeeded")), names);
    assert!(!scenario.controller.status().is_complete);
    assert_eq!(scenario.set(&names[1], phase("Succeeded")), names);
    assert!(scenario.controller.status().is_complete);
}

#[test]
fn a_suspended_job_has_no_pods() {
    for job in ["suspend: true,", "parallelism: 0,"] {
        let scenario = Scenario::new(workload("Job", job, "restartPolicy: Never,"));
        assert_eq!(scenario.names(), Vec::<String>::new(), "{job}");
    }
}
