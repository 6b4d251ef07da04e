//! Pauses, which hold kills of containers.

use std::time::Duration;

use serde_json::json;

use super::fixture::*;
use super::kill::{at_once, failing, kill, messages, node, well};
use crate::events::reason;
use crate::policy::{Pause, PauseSelector, Pauses};
use crate::prober::{EnforcementMode, EnforcementSettings};

/// Begins a pause of a minute.
fn begin(pauses: &Pauses, selector: &str) {
    let PauseSelector(selector) = selector.parse().unwrap();
    let pause = Pause { name: None, selector, lifetime: Duration::from_secs(60), readiness: false };
    pauses.begin(pause, "the test").unwrap();
}

/// Returns settings with which containers are killed, and their pauses.
fn pausable() -> (EnforcementSettings, Pauses) {
    let pauses = Pauses::default();
    (EnforcementSettings { pauses: pauses.clone(), ..kill() }, pauses)
}

#[tokio::test(start_paused = true)]
async fn paused_containers_are_not_killed_until_the_pause_ends() {
    for is_resumed in [false, true] {
        let (settings, pauses) = pausable();
        let pods = ["web", "api"].map(|name| failing(name, &json!({})));
        let (mut node, stops, start) = node(settings, &pods, well, at_once).await;
        begin(&pauses, "it/web");
        node.run_pod("web");
        node.run_pod("api");
        after(1.0).await;
        node.exit("api/main", 137);
        after(29.0).await;
        let stopped = |stops: &super::kill::Stops| -> Vec<String> {
            stops.lock().unwrap().iter().map(|(_, container, _)| container.clone()).collect()
        };
        assert_eq!(stopped(&stops), ["api/main#0"]);
        let skipped = messages(&node, start, reason::KILL_SKIPPED);
        let why = "Container main failed liveness probe, will be killed (not stopped: pause-1 holds kills)";
        assert!(skipped.len() > 10 && skipped.iter().all(|(_, message)| message == why), "{skipped:?}");
        assert_eq!(node.probe("web/main", LIVENESS).unwrap().killed, 0);
        if is_resumed {
            pauses.resume(&[], "the test").unwrap();
            after(2.0).await;
        } else {
            after(32.0).await;
        }
        assert_eq!(stopped(&stops), ["api/main#0", "web/main#0"], "resumed: {is_resumed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_aborts_a_kill_during_its_hook_and_the_probe_counts_again() {
    let mut main = probes([probe(LIVENESS, json!({"failureThreshold": 3}))]);
    main["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 10}}});
    let web = pod("web", "Always", &[("main", main)]);
    let (settings, pauses) = pausable();
    let (mut node, stops, start) = node(settings, &[web], well, at_once).await;
    node.run_pod("web");
    after(5.0).await;
    assert_eq!(messages(&node, start, reason::KILLING).len(), 1, "its hook runs");
    begin(&pauses, "pod=web,container=main");
    after(15.0).await;
    assert_eq!(*stops.lock().unwrap(), []);
    let aborted = messages(&node, start, reason::KILL_ABORTED);
    assert_eq!(aborted, [(12.0, "Kill aborted: the probes of the container are paused now".to_owned())]);
    assert!(!messages(&node, start, reason::KILL_SKIPPED).is_empty(), "it is still probed");
    pauses.resume(&[], "the test").unwrap();
    after(16.0).await;
    assert_eq!(stops.lock().unwrap().len(), 1, "killed after three failures and its hook");
    assert_eq!(node.probe("web/main", LIVENESS).unwrap().killed, 0, "the container still runs");
}

#[tokio::test(start_paused = true)]
async fn dry_run_predicts_no_kill_for_an_exec_probe_that_a_pause_answers() {
    let (settings, pauses) = pausable();
    let settings = EnforcementSettings { mode: EnforcementMode::DryRun, ..settings };
    let (mut node, _, start) = node(settings, &[failing("web", &json!({}))], well, at_once).await;
    begin(&pauses, "it/web");
    node.run_pod("web");
    after(30.0).await;
    assert_eq!(messages(&node, start, reason::WOULD_KILL), []);
    let skipped = messages(&node, start, reason::KILL_SKIPPED);
    let why = "Container main failed liveness probe, will be restarted (dry-run: pause-1 answers the kubelet's probes)";
    assert!(!skipped.is_empty() && skipped.iter().all(|(_, message)| message == why), "{skipped:?}");
    pauses.resume(&[], "the test").unwrap();
    after(2.0).await;
    assert!(!messages(&node, start, reason::WOULD_KILL).is_empty());
}
