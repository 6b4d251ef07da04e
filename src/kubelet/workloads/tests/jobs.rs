//! Tests of jobs.

use std::sync::Arc;
use std::time::Duration;

use super::{PodState, Scenario, deleted, phase, running, workload};
use crate::manifest::WorkloadSpec;
use crate::manifest::reader::tests::pod_set;

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
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: w}}, spec: {{suspend: {suspend}, schedule: '@daily', jobTemplate: {{spec: {{template: \
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
fn a_job_fails_at_its_deadline_which_a_suspension_resets() {
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
