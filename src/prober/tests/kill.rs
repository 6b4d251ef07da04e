//! Kills of containers, and the reasons for which containers are not killed.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;
use wildmatch::WildMatch;

use super::fixture::*;
use crate::cri::v1::{ExecSyncRequest, StopContainerRequest};
use crate::events::reason;
use crate::handler::Executor;
use crate::handler::exec_tests::answer;
use crate::probe::Selector;
use crate::prober::{EnforcementMode, EnforcementSettings, KillLimit, ProbeResult};
use crate::relay::CallInfo;

/// Change of a pod. A call that it starts is in flight until the returned value is dropped.
type Act = fn(&mut Node) -> Option<Arc<CallInfo>>;

/// Requested stops: seconds after the beginning, container, timeout.
pub(super) type Stops = Arc<Mutex<Vec<(f64, String, i64)>>>;

/// Returns settings with which containers are killed.
pub(super) fn kill() -> EnforcementSettings {
    EnforcementSettings { mode: EnforcementMode::Kill, ..EnforcementSettings::default() }
}

/// Returns a pod whose liveness probe fails every second. `more` has further fields of its spec.
pub(super) fn failing(name: &str, more: &Value) -> Value {
    let mut failing = pod(name, "Always", &[("main", probes([probe(LIVENESS, json!({}))]))]);
    failing["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    failing
}

/// Returns a node whose probes fail and whose hooks are answered by `hook`, with the requested
/// stops.
pub(super) async fn node(
    settings: EnforcementSettings,
    pods: &[Value],
    hook: fn(&ExecSyncRequest) -> (Duration, Answered),
    stop: fn(usize) -> (Duration, Result<(), Status>),
) -> (Node, Stops, Instant) {
    let stops = Stops::default();
    let begin = Instant::now() + SETTLED;
    let (stop_requests, count) = (stops.clone(), AtomicUsize::new(0));
    let executor =
        Executor::fake(
            move |request| {
                if request.timeout == 0 { hook(request) } else { (Duration::ZERO, fail()) }
            },
        );
    let executor = executor.with_stops(move |request: &StopContainerRequest| {
        let at = begin.elapsed().as_secs_f64().round();
        stop_requests.lock().unwrap().push((at, request.container_id.clone(), request.timeout));
        stop(count.fetch_add(1, Ordering::Relaxed))
    });
    let node = Node::enforcing(settings, pods, executor);
    node.prober.mark_listed();
    tokio::time::sleep(SETTLED).await;
    (node, stops, begin)
}

pub(super) fn well(_: &ExecSyncRequest) -> (Duration, Answered) {
    (Duration::ZERO, succeed())
}

pub(super) fn at_once(_: usize) -> (Duration, Result<(), Status>) {
    (Duration::ZERO, Ok(()))
}

pub(super) fn messages(node: &Node, begin: Instant, what: &'static str) -> Vec<(f64, String)> {
    let events = node.events_since(begin).into_iter().filter(|(_, known, _)| *known == what);
    events.map(|(at, _, message)| (at, message)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_instance_of_a_failed_container_is_stopped_once() {
    let web = failing("web", &json!({"terminationGracePeriodSeconds": 7}));
    let (mut node, stops, begin) = node(kill(), &[web], well, at_once).await;
    node.run_pod("web");
    after(5.0).await;
    let probe = node.probe("web/main", LIVENESS).unwrap();
    assert_eq!((probe.on_hold, probe.result), (true, Some(ProbeResult::Failure)));
    assert!(node.container_of("web/main").is_ready, "a failed liveness probe does not clear Ready");
    node.exit("web/main", 137);
    after(50.0).await;
    assert_eq!(*stops.lock().unwrap(), [(0.0, "web/main#0".to_owned(), 7)]);
    let killing = "Container main failed liveness probe, will be killed".to_owned();
    assert_eq!(messages(&node, begin, reason::KILLING), [(0.0, killing)]);
    assert_eq!(node.probe("web/main", LIVENESS).unwrap().killed, 1);
    // Another client restarts the container.
    node.run("web/main#1");
    after(5.0).await;
    node.exit("web/main#1", 137);
    after(5.0).await;
    assert_eq!(stops.lock().unwrap().len(), 2);
    assert_eq!(stops.lock().unwrap()[1].1, "web/main#1");
    assert_eq!(node.probe("web/main", LIVENESS).unwrap().killed, 2);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_is_that_of_probe_pod_or_default_minus_the_time_of_the_hook() {
    let hook = |hook: Value| json!({"preStop": hook});
    let sleep = |seconds: u32| hook(json!({"sleep": {"seconds": seconds}}));
    for (row, of_pod, of_probe, lifecycle, at, timeout) in [
        ("no grace period is set", json!({}), json!({}), json!({}), 0.0, 30),
        ("the pod", json!(40), json!({}), json!({}), 0.0, 40),
        ("the probe, more than the pod", json!(40), json!(500), json!({}), 0.0, 500),
        ("the probe, less than the pod", json!(40), json!(5), json!({}), 0.0, 5),
        ("the least", json!(40), json!(1), json!({}), 0.0, 2),
        ("none: no hook either", json!(0), json!({}), sleep(10), 0.0, 2),
        ("a hook", json!(40), json!({}), sleep(10), 10.0, 30),
        ("a hook that takes all of it", json!(20), json!({}), sleep(19), 19.0, 2),
        ("a hook that takes more", json!(20), json!({}), sleep(100), 20.0, 2),
        ("a hook within the probe's", json!(40), json!(12), sleep(10), 10.0, 2),
        (
            "a hook that executes",
            json!(40),
            json!({}),
            hook(json!({"exec": {"command": ["bye", "$(A)"]}})),
            3.0,
            37,
        ),
    ] {
        let mut main = probes([probe(LIVENESS, json!({}))]);
        if !of_probe.is_object() {
            main["livenessProbe"]["terminationGracePeriodSeconds"] = of_probe;
        }
        main["lifecycle"] = lifecycle;
        main["env"] = json!([{"name": "A", "value": "x"}]);
        let mut web = pod("web", "Always", &[("main", main)]);
        if !of_pod.is_object() {
            web["spec"]["terminationGracePeriodSeconds"] = of_pod;
        }
        let bye = |request: &ExecSyncRequest| {
            assert_eq!(
                (request.cmd.join(" ").as_str(), request.container_id.as_str()),
                ("bye $(A)", "web/main#0"),
                "commands of hooks are not expanded"
            );
            (Duration::from_secs(3), succeed())
        };
        let (mut node, stops, _) = node(kill(), &[web], bye, at_once).await;
        node.run_pod("web");
        after(25.0).await;
        assert_eq!(*stops.lock().unwrap(), [(at, "web/main#0".to_owned(), timeout)], "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_hook_is_reported_and_does_not_stop_the_kill() {
    for hook in [
        json!({"exec": {"command": ["bye"]}}),
        json!({"tcpSocket": {"port": 80}}),
        json!({"httpGet": {"port": "nobody"}}),
    ] {
        let mut main = probes([probe(LIVENESS, json!({}))]);
        main["lifecycle"] = json!({"preStop": hook});
        let web = pod("web", "Always", &[("main", main)]);
        let (mut node, stops, begin) =
            node(kill(), &[web], |_| (Duration::ZERO, answer(3, "", "")), at_once).await;
        node.run_pod("web");
        after(1.0).await;
        assert_eq!(
            messages(&node, begin, reason::FAILED_PRE_STOP_HOOK),
            [(0.0, "PreStopHook failed".to_owned())]
        );
        assert_eq!(stops.lock().unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_stop_is_retried_with_its_hook() {
    let mut main = probes([probe(LIVENESS, json!({}))]);
    main["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    let web = pod("web", "Always", &[("main", main)]);
    let stop = |count| match count {
        0 => (Duration::ZERO, Err(Status::unavailable("gone"))),
        // The runtime does not answer.
        1 => (Duration::from_secs(1_000), Ok(())),
        _ => (Duration::ZERO, Err(Status::not_found("no such container"))),
    };
    let (mut node, stops, begin) = node(kill(), &[web], well, stop).await;
    node.run_pod("web");
    after(185.0).await;
    node.exit("web/main", 137);
    after(100.0).await;
    let at: Vec<f64> = stops.lock().unwrap().iter().map(|(at, ..)| *at).collect();
    assert_eq!((at.len(), at[0]), (3, 1.0), "{at:?}");
    assert!((12.0..=17.0).contains(&at[1]), "10 to 15 s after it failed, and its hook: {at:?}");
    // The grace period, the request timeout of two minutes, the retry delay of 10 to 15 s, and the
    // hook.
    assert!((160.0..=165.0).contains(&(at[2] - at[1])), "{at:?}");
    assert_eq!(messages(&node, begin, reason::KILLING).len(), 3);
    assert_eq!(messages(&node, begin, reason::KILL_FAILED).len(), 2);
    assert_eq!(node.probe("web/main", LIVENESS).unwrap().killed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_still_runs_after_its_stop_is_stopped_again() {
    let (mut node, stops, begin) = node(kill(), &[failing("web", &json!({}))], well, at_once).await;
    node.run_pod("web");
    after(40.0).await;
    let at: Vec<f64> = stops.lock().unwrap().iter().map(|(at, ..)| *at).collect();
    assert_eq!(at, [0.0, 30.0], "it is seen at the latest by a relist");
    let failed =
        "The runtime reports that it has stopped the container, but the container still runs".to_owned();
    assert_eq!(messages(&node, begin, reason::KILL_FAILED), [(30.0, failed)]);
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_pod_are_killed_one_after_the_other() {
    let main = || {
        let mut main = probes([probe(LIVENESS, json!({}))]);
        main["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 10}}});
        main
    };
    let web = pod("web", "Always", &[("a", main()), ("b", main())]);
    let (mut node, stops, _) = node(kill(), &[web], well, at_once).await;
    node.pod("web");
    node.run("web/a");
    node.run("web/b");
    after(30.0).await;
    let at: Vec<f64> = stops.lock().unwrap().iter().map(|(at, ..)| *at).collect();
    assert_eq!(at, [10.0, 20.0]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ends_for_another_reason_is_not_killed() {
    let slow = || {
        let mut main = probes([probe(LIVENESS, json!({}))]);
        main["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 10}}});
        pod("web", "Always", &[("main", main)])
    };
    let acts: [(&str, Act, bool); 6] = [
        (
            "it ends",
            |node| {
                node.exit("web/main", 1);
                None
            },
            false,
        ),
        (
            "it is replaced",
            |node| {
                node.run("web/main#1");
                None
            },
            false,
        ),
        ("another client stops it", |node| Some(node.stop("web/main")), true),
        ("its pod is stopped", |node| Some(node.stop_pod("web")), true),
        (
            "the pod has gone",
            |node| {
                node.sandbox("web", "s-web", 0, false);
                None
            },
            true,
        ),
        (
            "the mode no longer permits kills",
            |node| {
                node.prober.set_mode(EnforcementMode::DryRun, "a test");
                None
            },
            true,
        ),
    ];
    for (row, act, aborts) in acts {
        let (mut node, stops, begin) = node(kill(), &[slow()], well, at_once).await;
        node.run_pod("web");
        after(5.0).await;
        let call = act(&mut node);
        after(5.5).await;
        assert_eq!(stops.lock().unwrap().len(), 0, "{row}");
        assert_eq!(messages(&node, begin, reason::KILL_ABORTED).len(), usize::from(aborts), "{row}");
        drop(call);
    }
}

#[tokio::test(start_paused = true)]
async fn kills_pause_at_the_kill_limit_and_resume_later() {
    let pods = ["a", "b", "c"].map(|name| failing(name, &json!({})));
    let most = KillLimit { count: 2, within: Duration::from_secs(60) };
    let (mut node, stops, begin) =
        node(EnforcementSettings { most: Some(most), ..kill() }, &pods, well, at_once).await;
    for name in ["a", "b", "c"] {
        node.run_pod(name);
    }
    after(1.0).await;
    node.exit("a/main", 137);
    node.exit("b/main", 137);
    after(49.0).await;
    assert_eq!(stops.lock().unwrap().len(), 2);
    assert!(messages(&node, begin, reason::KILL_SKIPPED).len() > 10, "it is still probed");
    let limited = "--max-kills is reached: 2 kills within 60.0s; further kills are skipped";
    assert_eq!(node.global_events(), [limited], "said once");
    assert!(node.prober.kills().rate_limited);
    after(20.0).await;
    assert_eq!(stops.lock().unwrap().len(), 3);
    assert!(!node.prober.kills().rate_limited);
}

#[tokio::test(start_paused = true)]
async fn protected_containers_are_not_killed_and_unmatched_selectors_are_reported() {
    let pods = ["web", "api"].map(|name| failing(name, &json!({})));
    let only = |pod: &str| Selector { pod: Some(WildMatch::new(pod)), ..Selector::default() };
    let settings = EnforcementSettings { protected: vec![only("we?"), only("nobody")], ..kill() };
    let executor = Executor::fake(|_| (Duration::ZERO, fail()));
    let mut node = Node::enforcing(settings, &pods, executor);
    node.run_pod("web");
    node.run_pod("api");
    node.prober.mark_listed();
    assert_eq!(node.global_events(), ["--never-kill selector pod nobody matches no container on this node"]);
    after(2.0).await;
    node.exit("api/main", 137);
    after(3.0).await;
    let killed = |name: &str| node.probe(&format!("{name}/main"), LIVENESS).unwrap().killed;
    assert_eq!((killed("web"), killed("api")), (0, 1));
    let why = "Container main failed liveness probe, will be killed (not stopped: it matches --never-kill)";
    let begin = Instant::now() - Duration::from_secs(10);
    assert!(messages(&node, begin, reason::WOULD_KILL).iter().any(|(_, message)| message == why));
}

#[tokio::test(start_paused = true)]
async fn without_a_spec_the_grace_period_is_that_which_the_kubelet_recorded() {
    let (mut node, stops, _) = node(kill(), &[], well, at_once).await;
    let probe = r#"{"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 1}"#;
    let recorded = [("io.kubernetes.pod.terminationGracePeriod", "9")];
    node.annotated("web", &[("probeshim.io/liveness.main", probe)], &recorded);
    after(3.0).await;
    assert_eq!(stops.lock().unwrap()[0].2, 9);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_termination_setting_kills_no_container() {
    for (key, text, reason) in [
        (
            "io.kubernetes.pod.terminationGracePeriod",
            "-5",
            "annotation io.kubernetes.pod.terminationGracePeriod: Invalid value: \"-5\": must be an integer between 0 and 2147483647, inclusive",
        ),
        (
            "io.kubernetes.container.preStopHandler",
            r#"{"exec": {"command": []}}"#,
            "annotation io.kubernetes.container.preStopHandler: exec.command: Required value",
        ),
    ] {
        let (mut node, stops, begin) = node(kill(), &[], well, at_once).await;
        let annotations = [(
            "probeshim.io/liveness.main",
            r#"{"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 1}"#,
        )];
        node.annotated("web", &annotations, &[(key, text)]);
        after(3.0).await;
        assert_eq!(stops.lock().unwrap().len(), 0);
        let held = messages(&node, begin, reason::KILL_SKIPPED);
        assert!(held[0].1.ends_with(&format!("(not stopped: {reason})")), "{held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_in_a_pod_that_may_be_terminating_is_not_killed() {
    let hook = json!({"exec": {"command": ["bye"]}});
    let main = |hook: &Value| {
        let mut main = probes([probe(LIVENESS, json!({"failureThreshold": 3}))]);
        main["lifecycle"] = json!({"preStop": hook});
        main
    };
    // The kubelet executes the hook of the container, so the container is about to be stopped.
    let web = pod("web", "Always", &[("main", main(&hook))]);
    let (mut node, stops, _) = node(kill(), &[web], well, at_once).await;
    node.run_pod("web");
    let call = kubelet_call("ExecSync");
    node.prober.on_kubelet_exec_start("web/main#0", &["bye".to_owned()], &Arc::downgrade(&call));
    after(20.0).await;
    assert_eq!(stops.lock().unwrap().len(), 0);
    drop(call);
    after(20.0).await;
    assert_eq!(stops.lock().unwrap().len(), 1, "it was not");
    // One container of the pod is stopped for an unknown reason, so the others may follow.
    let (a, b) = (main(&hook), main(&hook));
    let web = pod("web", "Always", &[("a", a), ("b", b)]);
    let (mut node, stops, _) = self::node(kill(), &[web], well, at_once).await;
    node.pod("web");
    node.run("web/a");
    node.run("web/b");
    let call = node.stop("web/a");
    after(9.0).await;
    assert_eq!(stops.lock().unwrap().len(), 0, "the kubelet would stop b at the same time");
    let report = node.prober.report();
    let held = report[0].containers[1].probe(LIVENESS).unwrap().hold_reason.clone();
    assert_eq!(held.as_deref(), Some("the kubelet has stopped the container a, and may stop the pod"));
    after(8.0).await;
    assert_eq!(
        stops.lock().unwrap()[0].1,
        "web/b#0",
        "the pod does not end, although a is still being stopped"
    );
    node.exit("web/a", 137);
    drop(call);
}

/// The hook of `b` runs before the kubelet stops the container, and no call shows it.
#[tokio::test(start_paused = true)]
async fn a_container_with_an_invisible_hook_is_not_killed_within_the_grace_period_of_its_pod() {
    let a = probes([]);
    let mut b = probes([probe(LIVENESS, json!({"failureThreshold": 3}))]);
    b["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 5}}});
    let mut web = pod("web", "Always", &[("a", a), ("b", b)]);
    web["spec"]["terminationGracePeriodSeconds"] = json!(40);
    let (mut node, stops, _) = self::node(kill(), &[web], well, at_once).await;
    node.pod("web");
    node.run("web/a");
    node.run("web/b");
    let call = node.stop("web/a");
    after(38.0).await;
    assert_eq!(stops.lock().unwrap().len(), 0);
    after(8.0).await;
    assert_eq!(stops.lock().unwrap()[0].1, "web/b#0");
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn a_failed_readiness_probe_never_kills() {
    let web = pod("web", "Always", &[("main", probes([probe(READINESS, json!({}))]))]);
    let (mut node, stops, _) = node(kill(), &[web], well, at_once).await;
    node.run_pod("web");
    after(10.0).await;
    assert_eq!(node.result("web/main", READINESS), Some(ProbeResult::Failure));
    assert_eq!(stops.lock().unwrap().len(), 0);
}
