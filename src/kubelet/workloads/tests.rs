//! Tests of the controllers: which pods exist, by the states of the pods.

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
fn a_replica_that_was_ready_or_deleted_begins_its_back_off_anew() {
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

/// Returns a job whose pods are not restarted, with additional fields.
fn job(of_job: &str) -> Arc<WorkloadSpec> {
    workload("Job", of_job, "restartPolicy: Never,")
}

#[test]
fn a_suspended_job_has_no_pods() {
    for of_job in ["suspend: true,", "parallelism: 0,"] {
        let scenario = Scenario::new(job(of_job));
        assert_eq!(scenario.names(), Vec::<String>::new(), "{of_job}");
        assert!(!scenario.controller.status().is_complete, "{of_job}");
    }
}

#[test]
fn a_job_that_is_suspended_keeps_its_successes_and_continues_afterwards() {
    let [active, suspended] =
        ["", "suspend: true,"].map(|suspend| job(&format!("completions: 2, parallelism: 2, {suspend}")));
    let mut scenario = Scenario::new(active.clone());
    let names = scenario.names();
    scenario.set(&names[0], phase("Succeeded"));
    assert!(scenario.controller.continues(&suspended));
    scenario.controller = scenario.controller.scaled(suspended);
    scenario.update();
    assert_eq!(scenario.names(), names[..1], "the active pod is removed");
    scenario.controller = scenario.controller.scaled(active);
    scenario.update();
    // As in Kubernetes, a removed pod counts as a failure, which has a back-off.
    assert_eq!(scenario.advance(), Duration::from_secs(10));
    let resumed = scenario.names();
    assert_eq!((resumed.len(), &resumed[0]), (2, &names[0]));
    scenario.set(&resumed[1], phase("Succeeded"));
    assert!(scenario.controller.status().is_complete);
}

#[test]
fn a_cron_job_that_is_suspended_starts_no_job_and_leaves_a_job_that_has_started_alone() {
    let cron_job = |suspend: bool| {
        let text = format!(
            "{{kind: CronJob, metadata: {{name: w}}, spec: {{suspend: {suspend}, jobTemplate: {{spec: {{template: \
             {{spec: {{restartPolicy: Never, containers: [{{name: main, image: i}}]}}}}}}}}}}}}"
        );
        pod_set(&text).unwrap().workloads.remove(0)
    };
    let mut scenario = Scenario::new(cron_job(true));
    assert_eq!(scenario.names(), Vec::<String>::new());
    scenario.controller = scenario.controller.scaled(cron_job(false));
    scenario.update();
    let names = scenario.names();
    assert_eq!(names.len(), 1);
    scenario.controller = scenario.controller.scaled(cron_job(true));
    scenario.update();
    assert_eq!(scenario.names(), names);
}

#[test]
fn a_deleted_pod_of_a_job_counts_as_a_success_only_if_it_has_succeeded() {
    let mut scenario = Scenario::new(job("completions: 2, parallelism: 2, backoffLimit: 0,"));
    let names = scenario.names();
    scenario.set(&names[0], phase("Succeeded"));
    let after = PodState { is_deleted: true, ..phase("Succeeded") };
    assert_eq!(scenario.set(&names[0], after), names[1..], "its work is not done again");
    assert_eq!(scenario.set(&names[1], phase("Succeeded")), names[1..]);
    let status = scenario.controller.status();
    assert_eq!((status.is_complete, &status.failure), (true, &None));
    let mut scenario = Scenario::new(job("backoffLimit: 0,"));
    let names = scenario.names();
    assert_eq!(scenario.set(&names[0], deleted()), Vec::<String>::new());
    assert!(scenario.controller.status().failure.is_some(), "a running pod that is deleted has failed");
}

#[test]
fn a_job_with_a_smaller_parallelism_removes_active_pods_and_keeps_successes() {
    for completions in ["completions: 4,", ""] {
        let of_size = |parallelism: u32| job(&format!("{completions} parallelism: {parallelism},"));
        let mut scenario = Scenario::new(of_size(3));
        let names = scenario.names();
        assert_eq!(names.len(), 3);
        scenario.controller = scenario.controller.scaled(of_size(1));
        scenario.update();
        assert_eq!(scenario.names(), names[..1], "{completions}");
    }
    // The pods of a shared queue that have succeeded count, whatever the parallelism is.
    let mut scenario = Scenario::new(job("parallelism: 3,"));
    let names = scenario.names();
    scenario.set(&names[2], phase("Succeeded"));
    scenario.controller = scenario.controller.scaled(job("parallelism: 1,"));
    assert_eq!(scenario.set(&names[0], phase("Succeeded")), names);
    assert_eq!(scenario.set(&names[1], phase("Succeeded")), names);
    assert!(scenario.controller.status().is_complete);
}

#[test]
fn a_job_fails_at_its_deadline_which_begins_anew_after_a_suspension() {
    let of_job = "completions: 2, parallelism: 1, activeDeadlineSeconds: 60,";
    let mut scenario = Scenario::new(job(of_job));
    let names = scenario.names();
    scenario.controller = scenario.controller.scaled(job(&format!("{of_job} suspend: true,")));
    scenario.update();
    assert_eq!(scenario.controller.next(), None);
    scenario.now += Duration::from_secs(50);
    scenario.controller = scenario.controller.scaled(job(of_job));
    scenario.update();
    let resumed = scenario.names();
    assert!(resumed.len() == 1 && resumed != names, "{resumed:?}");
    scenario.set(&resumed[0], phase("Succeeded"));
    assert_eq!(scenario.advance(), Duration::from_secs(60));
    assert_eq!(scenario.names(), resumed, "the active pod is removed, and the other one stays");
    let expected = "Job test/w has failed: DeadlineExceeded: Job was active longer than specified deadline";
    assert_eq!(scenario.controller.status().failure.as_deref(), Some(expected));
}

#[test]
fn a_job_that_has_ended_stays_so_in_a_later_process() {
    let of_job = "backoffLimit: 0,";
    let mut scenario = Scenario::new(workload("Job", of_job, "restartPolicy: OnFailure,"));
    let names = scenario.names();
    scenario.set(&names[0], PodState { restarts: 1, ..running() });
    let failure = scenario.controller.status().failure.clone();
    scenario.restart(workload("Job", of_job, "restartPolicy: OnFailure,"));
    assert_eq!((scenario.names().len(), &scenario.controller.status().failure), (0, &failure));
    assert!(failure.is_some());
    let mut scenario = Scenario::new(job(""));
    let names = scenario.names();
    scenario.set(&names[0], phase("Succeeded"));
    scenario.states.clear();
    scenario.restart(job(""));
    assert_eq!(scenario.names(), names, "the pod stays, and its work is not done again");
    assert!(scenario.controller.status().is_complete);
}

#[test]
fn the_back_off_of_a_job_continues_in_a_later_process() {
    let mut scenario = Scenario::new(job("backoffLimit: 3,"));
    for backoff in [10, 20] {
        let name = scenario.names().pop().unwrap();
        scenario.set(&name, phase("Failed"));
        scenario.restart(job("backoffLimit: 3,"));
        assert_eq!(scenario.advance(), Duration::from_secs(backoff));
    }
    assert_eq!(scenario.names().len(), 3);
}
