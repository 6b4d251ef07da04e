//! Times of attempts, and the results that they lead to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;

use super::fixture::*;
use crate::cri::v1::{self, ExecSyncRequest};
use crate::events::reason;
use crate::manifest::{ProbeType, Source};
use crate::probe::SpecResolver;
use crate::prober::{EnforcementMode, PodPhase, ProbeResult};
use crate::tap::Observation;

#[tokio::test(start_paused = true)]
async fn a_created_container_that_has_not_started_has_not_failed() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({}))]))]);
    let mut node = Node::settled(&[web], |_| succeed()).await;
    let begin = Instant::now();
    node.pod("web");
    node.container("web/main", v1::ContainerState::ContainerCreated, 0, None);
    after(5.0).await;
    assert_eq!(node.report("web").phase, PodPhase::Pending);
    node.run("web/main");
    after(5.0).await;
    assert_eq!(
        (node.events_since(begin), node.result("web/main", LIVENESS)),
        (vec![], Some(ProbeResult::Success))
    );
}

/// A hook after the start of the container, or the image of a later container, may take long.
#[tokio::test(start_paused = true)]
async fn a_container_is_probed_once_the_sync_that_has_started_it_has_ended() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"failureThreshold": 9}))]))]);
    let mut node = Node::settled(&[web], |_| fail()).await;
    let failures = |node: &Node| node.probe("web/main", LIVENESS).unwrap().run.length;
    node.pod("web");
    let in_progress = node.prober.begin_sync(&node.report("web").names);
    node.run("web/main");
    after(5.5).await;
    assert_eq!((failures(&node), node.result("web/main", LIVENESS)), (0, None));
    drop(in_progress);
    after(1.0).await;
    assert_eq!((failures(&node), node.result("web/main", LIVENESS)), (1, Some(ProbeResult::Success)));
}

#[tokio::test(start_paused = true)]
async fn a_container_is_not_probed_during_the_post_start_hook_of_a_kubelet() {
    let mut main = probes([probe(LIVENESS, json!({"failureThreshold": 9}))]);
    main["lifecycle"] = json!({"postStart": {"exec": {"command": ["prepare"]}}});
    let mut node = Node::settled(&[pod("web", "Always", &[("main", main)])], |_| fail()).await;
    let failures = |node: &Node| node.probe("web/main", LIVENESS).unwrap().run.length;
    node.run_pod("web");
    let hook = kubelet_call("ExecSync");
    node.prober.on_kubelet_exec_start("web/main#0", &["prepare".to_owned()], &Arc::downgrade(&hook));
    after(5.5).await;
    assert_eq!(failures(&node), 0);
    drop(hook);
    after(1.0).await;
    assert_eq!(failures(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn probe_errors_count_neither_as_success_nor_as_failure() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"failureThreshold": 2}))]))]);
    // A failure, then an error (three tries), then a failure: two failures in a row.
    let mut node = Node::settled(&[web], move |_| match counted.fetch_add(1, Ordering::Relaxed) {
        1..=3 => Err(Status::internal("runtime trouble")),
        _ => fail(),
    })
    .await;
    let begin = Instant::now();
    node.run_pod("web");
    after(1.5).await;
    assert_eq!(node.probe("web/main", LIVENESS).unwrap().run.length, 1);
    after(1.0).await;
    let killed: Vec<f64> = node
        .events_since(begin)
        .into_iter()
        .filter(|(_, what, _)| *what == reason::WOULD_KILL)
        .map(|(at, ..)| at)
        .collect();
    assert_eq!(killed, [2.0]);
    assert_eq!(calls.load(Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_error_are_counted_until_an_attempt_of_the_container_has_a_result() {
    let (missing, is_fixed) = ("exec: \"no\": executable file not found in $PATH", Arc::default());
    let plays: Arc<AtomicBool> = Arc::clone(&is_fixed);
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({}))]))]);
    let mut node = Node::settled(&[web], move |_| {
        if plays.load(Ordering::Relaxed) { succeed() } else { Err(Status::unknown(missing)) }
    })
    .await;
    let attempts = |node: &Node, name| {
        let probe = node.probe(name, LIVENESS).unwrap();
        let attempts = probe.attempts.map(|run| (run.error().map(str::to_owned), run.length));
        (probe.result, probe.run.last, attempts)
    };
    node.run_pod("web");
    after(2.5).await;
    let message = format!("rpc error: code = Unknown desc = {missing}");
    let erroring = |count| (Some(ProbeResult::Success), None, Some((Some(message.clone()), count)));
    assert_eq!(attempts(&node, "web/main"), erroring(3));
    node.exit("web/main", 1);
    node.run("web/main#1");
    assert_eq!(attempts(&node, "web/main").2, None, "no attempt was made in the container");
    after(1.0).await;
    assert_eq!(attempts(&node, "web/main"), erroring(1));
    is_fixed.store(true, Ordering::Relaxed);
    after(2.0).await;
    assert_eq!(attempts(&node, "web/main").2, Some((None, 2)));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_reported_as_running_until_it_ends_or_its_container_is_replaced() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"timeoutSeconds": 60}))]))]);
    let mut node = Node::slow(&[web], |_| (Duration::from_secs(30), succeed()));
    after(SETTLED.as_secs_f64()).await;
    node.run_pod("web");
    after(20.0).await;
    let is_running =
        |node: &Node| node.probe("web/main", LIVENESS).is_some_and(|it| it.running_since.is_some());
    assert!(is_running(&node) && node.result("web/main", LIVENESS) == Some(ProbeResult::Success));
    assert!(node.probe("web/main", LIVENESS).unwrap().attempts.is_none(), "it is the first attempt");
    node.prober.set_mode(EnforcementMode::Off, "a test");
    after(60.0).await;
    assert!(!is_running(&node));
}

#[tokio::test(start_paused = true)]
async fn readiness_is_probed_immediately_after_the_startup_probe_succeeds() {
    let slow = json!({"periodSeconds": 30});
    let begin = Instant::now();
    let is_up = move || begin.elapsed() > SETTLED + Duration::from_secs(32);
    let all =
        probes([probe(STARTUP, json!({"periodSeconds": 5, "failureThreshold": 60})), probe(READINESS, slow)]);
    let mut node = Node::settled(&[pod("web", "Always", &[("main", all)])], move |request| {
        if request.cmd[0] != "startup" || is_up() { succeed() } else { fail() }
    })
    .await;
    node.run_pod("web");
    after(34.0).await;
    assert!(!node.container_of("web/main").is_started);
    after(1.1).await;
    let container = node.container_of("web/main");
    assert!(container.is_started && container.is_ready);
    assert!(node.probe("web/main", STARTUP).unwrap().on_hold);
}

#[tokio::test(start_paused = true)]
async fn a_startup_probe_delays_the_other_probes_after_each_restart() {
    let all = probes([probe(STARTUP, json!({"failureThreshold": 1000})), probe(LIVENESS, json!({}))]);
    let is_up = Arc::new(AtomicBool::new(false));
    let plays = is_up.clone();
    let mut node = Node::settled(&[pod("web", "Always", &[("main", all)])], move |request| {
        if request.cmd[0] == "startup" && plays.load(Ordering::Relaxed) { succeed() } else { fail() }
    })
    .await;
    let begin = Instant::now();
    node.run_pod("web");
    after(240.0).await;
    let would_kill =
        |node: &Node, begin| node.events_since(begin).iter().any(|(_, what, _)| *what == reason::WOULD_KILL);
    assert!(!would_kill(&node, begin), "startup delays liveness");
    is_up.store(true, Ordering::Relaxed);
    after(3.0).await;
    assert!(would_kill(&node, begin), "liveness after startup enables it");
    is_up.store(false, Ordering::Relaxed);
    node.exit("web/main", 1);
    after(2.0).await;
    assert!(!node.container_of("web/main").is_started);
    let begin = Instant::now();
    node.run("web/main#1");
    after(10.0).await;
    assert!(
        !node.container_of("web/main").is_started && !would_kill(&node, begin),
        "it is another container"
    );
}

#[tokio::test(start_paused = true)]
async fn probe_attempts_stay_on_the_grid_of_their_period() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (kept, first) = (times.clone(), Arc::new(Mutex::new(None)));
    let web = pod(
        "web",
        "Always",
        &[("main", probes([probe(LIVENESS, json!({"periodSeconds": 10, "timeoutSeconds": 100}))]))],
    );
    let play = move |_: &ExecSyncRequest| {
        let begin = *first.lock().unwrap().get_or_insert_with(Instant::now);
        let mut times = kept.lock().unwrap();
        times.push((begin.elapsed().as_secs_f64() * 10.0).round() / 10.0);
        // The second attempt takes two and a half periods.
        (Duration::from_secs(if times.len() == 2 { 25 } else { 1 }), succeed())
    };
    let mut node = Node::slow(&[web], play);
    node.prober.mark_listed();
    after(100.0).await;
    node.run_pod("web");
    after(62.0).await;
    assert_eq!(*times.lock().unwrap(), [0.0, 10.0, 35.0, 40.0, 50.0, 60.0]);
}

#[tokio::test(start_paused = true)]
async fn the_grid_of_attempts_begins_with_the_worker_and_not_with_the_container() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let kept = times.clone();
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"periodSeconds": 10}))]))]);
    let mut node = Node::settled(&[web], move |_| {
        kept.lock().unwrap().push(Instant::now());
        succeed()
    })
    .await;
    let begin = Instant::now();
    node.pod("web");
    after(3.0).await;
    node.run("web/main");
    after(20.0).await;
    let seconds: Vec<u64> = times.lock().unwrap().iter().map(|at| (*at - begin).as_secs()).collect();
    assert_eq!(seconds, [10, 20]);
}

/// A pod is synced after 60 to 90 seconds without a change. Each sync triggers the readiness probe
/// and restarts its period, so no tick of the period comes.
#[tokio::test(start_paused = true)]
async fn periodic_syncs_trigger_the_readiness_probe_and_restart_its_period() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let kept = times.clone();
    let web = pod("web", "Always", &[("main", probes([probe(READINESS, json!({"periodSeconds": 100}))]))]);
    let mut node = Node::settled(&[web], move |_| {
        kept.lock().unwrap().push(Instant::now());
        fail()
    })
    .await;
    node.run_pod("web");
    after(1_000.0).await;
    let times = times.lock().unwrap();
    let pauses: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    // The start of the container causes more than one attempt.
    let pauses: Vec<f64> = pauses.into_iter().filter(|pause| *pause > 0.5).collect();
    assert!(pauses.len() > 9 && pauses.iter().all(|pause| (60.0..=91.1).contains(pause)), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_worker_ends_after_its_attempt() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"timeoutSeconds": 60}))]))]);
    let mut node = Node::slow(&[web], |_| (Duration::from_secs(30), succeed()));
    node.prober.mark_listed();
    after(SETTLED.as_secs_f64()).await;
    node.run_pod("web");
    after(20.0).await;
    node.prober.shared.pods().remove(0).lock().stop_workers();
    after(5.0).await;
    assert_eq!(node.workers(), ["web/main liveness"]);
    after(10.0).await;
    assert!(node.workers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn probe_metrics_have_the_durations_of_successes_and_end_with_their_worker() {
    let all = probes([probe(READINESS, json!({})), probe(LIVENESS, json!({}))]);
    let mut node = Node::settled(&[pod("web", "Always", &[("main", all)])], |request| {
        if request.cmd[0] == "readiness" { succeed() } else { fail() }
    })
    .await;
    let series = |node: &Node| {
        let mut text = String::new();
        for registry in node.prober.shared.metrics.registries() {
            encode(&mut text, &registry).unwrap();
        }
        ["prober_probe_total{", "prober_probe_duration_seconds_count{", "process_start_time_seconds "]
            .map(|name| text.lines().filter(|line| line.starts_with(name)).count())
    };
    node.run_pod("web");
    after(2.5).await;
    assert_eq!(series(&node), [2, 1, 1]);
    node.observe(Observation::SandboxRemoved("s-web".into()));
    after(2.0).await;
    assert_eq!(series(&node), [0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn first_attempts_are_spread_only_while_the_prober_is_young() {
    let one = || probes([probe(LIVENESS, json!({"periodSeconds": 10}))]);
    let names: Vec<String> = (0..200).map(|count| format!("web-{count}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| pod(name, "Always", &[("main", one())])).collect();
    // A fixed seed makes the start times the same in each run.
    fastrand::seed(7);
    let (times, begin) = (Arc::new(Mutex::new(HashMap::new())), Instant::now());
    let kept = times.clone();
    let mut node = Node::new(&pods, move |request| {
        kept.lock().unwrap().entry(request.container_id.clone()).or_insert_with(|| begin.elapsed());
        succeed()
    });
    for name in &names[..100] {
        node.run_pod(name);
    }
    node.prober.mark_listed();
    after(15.0).await;
    for name in &names[100..] {
        node.run_pod(name);
    }
    after(0.5).await;
    let times = times.lock().unwrap();
    let seconds = |name: &str| times[&format!("{name}/main#0")].as_secs_f64();
    for tenth in 0..10 {
        let lower = f64::from(tenth);
        let count = names[..100].iter().filter(|name| (lower..lower + 1.0).contains(&seconds(name))).count();
        assert!((1..30).contains(&count), "{count} of 100 begin in second {tenth}");
    }
    assert!(names[100..].iter().all(|name| (15.0..15.1).contains(&seconds(name))));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ran_before_the_prober_is_not_treated_as_new() {
    let probed = |more: Value| {
        let all = [
            probe(STARTUP, more),
            probe(READINESS, json!({"initialDelaySeconds": 1000})),
            probe(LIVENESS, json!({"initialDelaySeconds": 1000})),
        ];
        pod("web", "Always", &[("main", probes(all))])
    };
    let start = async |startup: Value, age: u64| {
        let mut node = Node::new(&[probed(startup)], |_| fail());
        node.pod("web");
        node.container("web/main", v1::ContainerState::ContainerRunning, ago(age), None);
        after(1.5).await;
        node
    };
    let node = start(json!({"failureThreshold": 30}), 60).await;
    assert!(node.container_of("web/main").is_started, "its startup probe would have ended it");
    let results = ProbeType::ALL.map(|probe_type| node.result("web/main", probe_type));
    assert_eq!(results, [None; 3], "nothing is held of it yet");
    let node = start(json!({"failureThreshold": 300}), 60).await;
    assert!(!node.container_of("web/main").is_started, "it may not have started yet");
    let node = start(json!({"failureThreshold": 300}), 5).await;
    assert_eq!(node.result("web/main", LIVENESS), Some(ProbeResult::Success), "it is new");
}

#[tokio::test(start_paused = true)]
async fn a_changed_probe_spec_starts_another_probe_worker() {
    let written = |command: &str| {
        pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"exec": {"command": [command]}}))]))])
    };
    let commands = Arc::new(Mutex::new(Vec::new()));
    let seen = commands.clone();
    let mut node = Node::settled(&[written("old")], move |request| {
        seen.lock().unwrap().push(request.cmd[0].clone());
        succeed()
    })
    .await;
    node.run_pod("web");
    after(1.5).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.json"), written("new").to_string()).unwrap();
    node.prober.set_specs(SpecResolver::read(&[dir.path()]).unwrap());
    after(2.5).await;
    assert_eq!(node.workers(), ["web/main liveness"]);
    let commands = commands.lock().unwrap();
    assert_eq!((commands[0].as_str(), commands.last().unwrap().as_str()), ("old", "new"));
}

#[tokio::test(start_paused = true)]
async fn a_probe_continues_if_only_its_source_changes() {
    let written = || pod("web", "Always", &[("main", probes([probe(READINESS, json!({}))]))]);
    let mut node = Node::settled(&[written()], |_| succeed()).await;
    node.run_pod("web");
    after(5.5).await;
    let before = node.probe("web/main", READINESS).unwrap().run.length;
    let mut kubelet_specs = SpecResolver::default();
    let list = json!({"kind": "PodList", "items": [written()]});
    kubelet_specs.set_kubelet_pod_list(&list);
    node.prober.set_specs(kubelet_specs);
    after(2.0).await;
    let probe = node.probe("web/main", READINESS).unwrap();
    assert_eq!((probe.run.length, probe.probe.source), (before + 2, Source::Kubelet));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_with_all_its_containers_has_no_workers() {
    let all = probes(ProbeType::ALL.map(|probe_type| probe(probe_type, json!({}))));
    let mut node = Node::settled(&[pod("web", "Always", &[("main", all)])], |_| succeed()).await;
    node.run_pod("web");
    after(3.0).await;
    node.sandbox("web", "s-web", 0, false);
    after(3.0).await;
    assert!(node.workers().contains(&"web/main readiness".to_owned()), "as long as it runs");
    node.exit("web/main", 143);
    after(200.0).await;
    assert!(node.workers().is_empty(), "{:?}", node.workers());
}

#[tokio::test(start_paused = true)]
async fn a_new_sandbox_resets_all_probe_state() {
    let all = probes(ProbeType::ALL.map(|probe_type| probe(probe_type, json!({}))));
    let mut node = Node::settled(&[pod("web", "Always", &[("main", all)])], |_| succeed()).await;
    node.run_pod("web");
    after(3.0).await;
    let everyone = ["web/main liveness", "web/main readiness", "web/main startup"];
    assert_eq!(node.workers(), everyone);
    node.sandbox("web", "s-web", 0, false);
    after(3.0).await;
    assert!(!node.workers().contains(&everyone[0].to_owned()), "{:?}", node.workers());
    node.sandbox("web", "s-web-1", 1, true);
    node.observe(Observation::SandboxRemoved("s-web".into()));
    after(3.0).await;
    assert_eq!(node.workers(), everyone);
}

#[tokio::test(start_paused = true)]
async fn a_container_observed_before_its_sandbox_is_probed() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({}))]))]);
    let mut node = Node::settled(&[web], |_| succeed()).await;
    node.run("web/main");
    node.pod("web");
    after(2.0).await;
    assert_eq!(node.result("web/main", LIVENESS), Some(ProbeResult::Success));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_worker_is_reported_and_stops_no_other() {
    let one = || probes([probe(LIVENESS, json!({}))]);
    let pods = ["bad", "good"].map(|name| pod(name, "Always", &[("main", one())]));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let mut node = Node::settled(&pods, move |request| {
        assert!(!request.container_id.starts_with("bad"), "for the test");
        counted.fetch_add(1, Ordering::Relaxed);
        succeed()
    })
    .await;
    let begin = Instant::now();
    node.run_pod("bad");
    node.run_pod("good");
    after(3.5).await;
    let faults =
        node.events_since(begin).into_iter().filter(|(_, what, _)| *what == reason::PROBE_PANICKED).count();
    assert_eq!((faults, calls.load(Ordering::Relaxed)), (4, 4), "each worker continues");
    assert_eq!(node.workers(), ["bad/main liveness", "good/main liveness"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_outside_of_the_spec_has_no_probe_workers() {
    let web = pod("web", "Always", &[("main", probes([probe(READINESS, json!({}))]))]);
    let mut node = Node::settled(&[web], |_| succeed()).await;
    node.run_pod("web");
    node.run("web/debugger");
    after(2.0).await;
    node.exit("web/debugger", 0);
    after(2.0).await;
    assert_eq!(node.workers(), ["web/main readiness"]);
    assert!(node.report("web").conditions[1].is_met);
}

#[tokio::test(start_paused = true)]
async fn in_the_mode_off_no_attempt_is_made_until_the_mode_is_another_one() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"periodSeconds": 1}))]))]);
    let mut node = Node::settled(&[web], move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        fail()
    })
    .await;
    node.run_pod("web");
    after(5.5).await;
    let count = || attempts.load(Ordering::Relaxed);
    let made = count();
    assert!(made > 3, "{made}");
    let begin = Instant::now();
    node.prober.set_mode(EnforcementMode::Off, "a test");
    after(60.0).await;
    assert_eq!((count(), node.events_since(begin).len()), (made, 0));
    node.prober.set_mode(EnforcementMode::DryRun, "a test");
    after(5.5).await;
    assert!(count() > made + 3, "{}", count());
}
