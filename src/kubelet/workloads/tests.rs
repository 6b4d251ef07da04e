//! Tests of the controllers: which pods exist, by the states of the pods.

mod jobs;

use std::collections::{BTreeMap, BTreeSet};
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
    saved: Option<String>,
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
            controller: Controller::new(workload, None, Instant::now()),
            states: BTreeMap::new(),
            now: Instant::now(),
            saved: None,
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

    /// Restarts the controller with the progress that it has saved, if there is a newer one.
    fn restart(&mut self, workload: Arc<WorkloadSpec>) {
        if let Some(progress) = self.controller.changed_progress() {
            self.saved = Some(serde_json::to_string(progress).unwrap());
        }
        let saved = self.saved.as_deref().map(|text| serde_json::from_str(text).unwrap());
        self.controller = Controller::new(workload, saved, self.now);
        self.update();
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
    assert_eq!([backoff(6), backoff(7), backoff(41)].map(|delay| delay.as_secs()), [320, 600, 600]);
}

#[test]
fn a_pod_that_was_ready_or_deleted_resets_the_back_off_of_its_replica() {
    let mut scenario = Scenario::new(workload("ReplicaSet", "", ""));
    let newest = |scenario: &Scenario| scenario.names().pop().unwrap();
    for (before_failure, backoff) in [(phase("Pending"), 10), (phase("Pending"), 20), (running(), 10)] {
        let name = newest(&scenario);
        scenario.set(&name, before_failure);
        scenario.set(&name, phase("Failed"));
        assert_eq!(scenario.controller.status().missing.len(), 1, "the replacement is awaited");
        assert_eq!(scenario.advance(), Duration::from_secs(backoff));
    }
    let name = newest(&scenario);
    assert_ne!(scenario.set(&name, deleted()), [name], "a deleted pod is replaced at once");
    let name = newest(&scenario);
    scenario.set(&name, running());
    scenario.set(&name, phase("Failed"));
    assert_eq!(scenario.advance(), Duration::from_secs(10));
}

#[test]
fn pods_of_an_earlier_process_are_continued() {
    let deployment = workload("Deployment", "replicas: 2,", "");
    let mut scenario = Scenario::new(deployment.clone());
    let first = scenario.names();
    let second = scenario.set(&first[1], deleted());
    assert_ne!(first, second);
    scenario.restart(deployment);
    assert_eq!(scenario.names(), second);
    scenario.restart(workload("Deployment", "replicas: 2,", "hostPID: true,"));
    assert!(scenario.names().iter().all(|name| !second.contains(name)), "another template has other pods");
}

#[test]
fn pods_of_a_workload_have_different_names() {
    let mut scenario = Scenario::new(workload("ReplicaSet", "replicas: 1000,", ""));
    let mut names = scenario.names();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 1000);
    // Two pods have the same name unless the second one counts how many names are taken.
    let spec = workload("ReplicaSet", "", "");
    let taken = spec.free_slot(0, 0, &BTreeSet::new());
    let names = BTreeSet::from([spec.pod_name(taken)]);
    let slot = spec.free_slot(0, 0, &names);
    assert_eq!(slot.taken_names, 1);
    assert!(!names.contains(&spec.pod_name(slot)) && spec.uid(slot) == spec.uid(taken));
    scenario.restart(workload("ReplicaSet", "replicas: 1000,", ""));
    assert_eq!(scenario.names().len(), 1000);
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
