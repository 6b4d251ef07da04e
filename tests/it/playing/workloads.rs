//! The pods that `play` runs for workloads.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::{POLITE, Watched, is_clean, played, start};
use crate::admin::until_shown;
use crate::procrun::Runtime;
use crate::program::Place;

/// Returns a workload with one container that runs a script, with additional fields of both specs.
fn workload(kind: &str, name: &str, script: &str, of_workload: &str, of_pod: &str) -> String {
    let (version, selector) = match kind {
        "Job" => ("batch/v1", ""),
        _ => ("apps/v1", "selector: {matchLabels: {app: a}},"),
    };
    format!(
        "{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}, namespace: test}}, \
         spec: {{{of_workload} {selector} template: {{metadata: {{labels: {{app: a}}}}, spec: {{terminationGracePeriodSeconds: 2, {of_pod} \
         containers: [{{name: main, image: i, command: [sh, -c, \"{script}\"]}}]}}}}}}}}\n---\n"
    )
}

/// Returns names and uids of the pods that run or have ended, sorted by name.
fn present(pods: &Value) -> Vec<(String, String)> {
    let text = |pod: &Value, field: &str| pod[field].as_str().unwrap_or_default().to_owned();
    let pods = pods["pods"].as_array().unwrap().iter().filter(|pod| pod["removed"].is_null());
    pods.map(|pod| (text(pod, "name"), text(pod, "uid"))).collect()
}

/// Waits until `count` pods are ready, and returns their names and uids.
async fn ready(place: &Place, count: usize) -> Vec<(String, String)> {
    until_shown(place, &["status"], |status| {
        let all = status["pods"].as_array()?.iter().filter(|pod| pod["removed"].is_null());
        let is_ready = all.clone().all(|pod| pod["ready"] == true);
        (is_ready && all.count() == count).then(|| present(status))
    })
    .await
}

#[tokio::test]
async fn a_deployment_has_the_same_pods_after_a_crash_of_probeshim() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let watched = Watched::new(&place);
    watched.write("web.yaml", &workload("Deployment", "web", POLITE, "replicas: 3,", ""));
    let mut running = start(&place, watched.path()).await;
    let pods = ready(&place, 3).await;
    for (name, _) in &pods {
        let [hash, suffix] = name.strip_prefix("web-").unwrap().split('-').collect::<Vec<_>>()[..] else {
            panic!("{name}");
        };
        assert_eq!((hash.len(), suffix.len()), (10, 5), "{name}");
    }
    running.signal(Signal::KILL);
    assert_eq!(running.ended().await, None);
    let mut running = start(&place, watched.path()).await;
    assert_eq!(ready(&place, 3).await, pods);
    // A pod that is deleted is replaced, and the others stay.
    let deleted = &pods[1].0;
    let answer = place.ask(&["delete", deleted, "-n", "test"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let replaced = ready(&place, 3).await;
    let kept: Vec<_> = replaced.iter().filter(|pod| pods.contains(pod)).collect();
    assert_eq!(kept, [&pods[0], &pods[2]], "{replaced:?}");
    running.signal(Signal::KILL);
    assert_eq!(running.ended().await, None);
    let mut running = start(&place, watched.path()).await;
    assert_eq!(ready(&place, 3).await, replaced, "the replacement is remembered");
    // Scaling keeps pods; another template replaces them.
    watched.write("web.yaml", &workload("Deployment", "web", POLITE, "replicas: 1,", ""));
    let scaled = ready(&place, 1).await;
    assert!(replaced.contains(&scaled[0]), "{scaled:?}");
    watched.write("web.yaml", &workload("Deployment", "web", POLITE, "replicas: 1,", "hostNetwork: true,"));
    until_shown(&place, &["status"], |status| {
        let pods = present(status);
        (pods.len() == 1 && pods != scaled && status["pods"][0]["ready"] == true).then_some(())
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn pods_of_a_stateful_set_are_created_in_order_each_once_the_one_before_is_ready() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    // The second pod is ready once a file exists.
    let probe = format!("[ $HOSTNAME != db-1 ] || test -e {}", place.at("go").display());
    let manifest = workload("StatefulSet", "db", POLITE, "replicas: 3, serviceName: peers,", "").replace(
        "image: i,",
        &format!(
            "image: i, env: [{{name: HOSTNAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}], \
                  readinessProbe: {{periodSeconds: 1, exec: {{command: [sh, -c, '{probe}']}}}},"
        ),
    );
    fs::write(place.at("pods.yaml"), manifest).unwrap();
    let path = place.at("pods.yaml");
    let mut running = start(&place, path.to_str().unwrap()).await;
    let waiting = until_shown(&place, &["status"], |status| {
        let running = status["pods"].as_array()?.iter().filter(|pod| pod["status"] == "Running");
        (running.count() == 2).then(|| present(status))
    });
    let names: Vec<String> = waiting.await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["db-0", "db-1"]);
    fs::write(place.at("go"), "").unwrap();
    let names: Vec<String> = ready(&place, 3).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn until_ready_waits_for_the_pods_of_a_stateful_set_that_are_not_created_yet() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let manifest = workload("StatefulSet", "db", POLITE, "replicas: 3,", "");
    let answer = played(&place, &manifest, &["--until", "ready"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for name in ["db-0", "db-1", "db-2"] {
        let is_start = |line: &&str| line.contains(name) && line.contains("Container started");
        assert_eq!(answer.stdout.lines().filter(is_start).count(), 1, "{name}: {answer:?}");
    }
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn a_job_replaces_failed_pods_until_enough_have_succeeded() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    // The first pod of index 1 fails.
    let script = format!(
        "[ $JOB_COMPLETION_INDEX != 1 ] || [ -e {0} ] || {{ touch {0}; exit 3; }}",
        place.at("failed").display()
    );
    let fields = "completions: 3, parallelism: 2, completionMode: Indexed,";
    let job = workload("Job", "work", &script, fields, "restartPolicy: Never,");
    let answer = played(&place, &job, &["--until", "succeeded"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let exits = |code: &str| answer.stdout.lines().filter(|line| line.contains(code)).count();
    assert_eq!((exits("Exited with code 0"), exits("Exited with code 3")), (3, 1), "{answer:?}");
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn a_job_fails_at_its_backoff_limit() {
    for (policy, expected) in [("Never", "main exited with code 3 (Error)"), ("OnFailure", "")] {
        let place = Place::new();
        let runtime = Runtime::start_at(&place.at("runtime.sock"));
        let job = workload("Job", "work", "exit 3", "backoffLimit: 0,", &format!("restartPolicy: {policy},"));
        let answer = played(&place, &job, &[]).await;
        let message = "error: Job test/work has failed: BackoffLimitExceeded";
        assert!(
            answer.code == Some(1) && answer.stderr.contains(message) && answer.stderr.contains(expected),
            "{answer:?}"
        );
        is_clean(&place, runtime).await;
    }
}

#[tokio::test]
async fn pods_that_have_ended_do_not_run_again_after_a_crash_of_probeshim() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let runs = place.at("runs");
    let script = format!("echo run >> {}", runs.display());
    let of_policy = |policy: &str| {
        let name = policy.to_lowercase();
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: test}}, spec: {{restartPolicy: {policy}, \
             containers: [{{name: main, image: i, command: [sh, -c, \"{script}\"]}}]}}}}\n---\n"
        )
    };
    let job = workload("Job", "work", &script, "completions: 2,", "restartPolicy: Never,");
    // A pod that does not end keeps `play` running.
    let web = workload("Deployment", "web", POLITE, "", "");
    fs::write(place.at("pods.yaml"), [of_policy("Never"), of_policy("OnFailure"), job, web].concat())
        .unwrap();
    let path = place.at("pods.yaml");
    let mut running = start(&place, path.to_str().unwrap()).await;
    let all_ended = |status: &Value| {
        let pods = status["pods"].as_array()?.iter();
        let ended = pods.clone().filter(|pod| pod["status"] == "Completed").count();
        let is_ready = pods.filter(|pod| pod["ready"] == true).count() == 1;
        (ended == 4 && is_ready).then(|| present(status))
    };
    let pods = until_shown(&place, &["status"], all_ended).await;
    running.signal(Signal::KILL);
    assert_eq!(running.ended().await, None);
    let mut running = start(&place, path.to_str().unwrap()).await;
    assert_eq!(until_shown(&place, &["status"], all_ended).await, pods);
    // The work of a completed pod that is deleted is not done again either.
    let of_job = pods.iter().find(|(name, _)| name.starts_with("work-")).unwrap();
    let answer = place.ask(&["delete", &of_job.0, "-n", "test"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    until_shown(&place, &["status"], |status| (present(status).len() == 4).then_some(())).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    assert_eq!(fs::read_to_string(&runs).unwrap().lines().count(), 4);
    // An orderly end removes the pods, and the next start runs them again.
    let mut running = start(&place, path.to_str().unwrap()).await;
    until_shown(&place, &["status"], all_ended).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    assert_eq!(fs::read_to_string(&runs).unwrap().lines().count(), 8);
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn a_workload_without_replicas_is_no_error_and_runs_pods_once_it_has_some() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let web = |replicas: u32| workload("Deployment", "web", POLITE, &format!("replicas: {replicas},"), "");
    fs::write(place.at("web.yaml"), web(0)).unwrap();
    let mut running = start(&place, place.at("web.yaml").to_str().unwrap()).await;
    let expected = "no workload has a pod, because of its replicas, parallelism or suspend: waiting for changes of the manifests";
    running.logged(expected).await;
    fs::write(place.at("new"), web(2)).unwrap();
    fs::rename(place.at("new"), place.at("web.yaml")).unwrap();
    ready(&place, 2).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}
