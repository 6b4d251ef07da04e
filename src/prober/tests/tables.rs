//! Repeats tests of the kubelet that need a whole prober (`worker_test.go`,
//! `prober_manager_test.go`, `prober_test.go`, `results_manager_test.go`).

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;

use super::fixture::*;
use crate::cri::v1::{self};
use crate::handler::exec_tests::answer;
use crate::manifest::ProbeType;
use crate::prober::ProbeResult;
use crate::prober::probe_state::ContainerRun;
use crate::tap::Observation;

#[tokio::test(start_paused = true)]
async fn upstream_test_add_remove_pods() {
    let one = |probe_type| probes([probe(probe_type, json!({}))]);
    let pods = [
        pod("plain", "Always", &[("main", json!({}))]),
        pod(
            "probed",
            "Always",
            &[("a", one(READINESS)), ("b", one(LIVENESS)), ("c", one(STARTUP)), ("d", json!({}))],
        ),
    ];
    let mut node = Node::new(&pods, |_| succeed());
    node.pod("plain");
    assert!(node.workers().is_empty(), "AddRemovePods: pod without probes");
    node.pod("probed");
    let expected = ["probed/a readiness", "probed/b liveness", "probed/c startup"];
    assert_eq!(node.workers(), expected, "AddRemovePods: before any container is there");
    for _ in 0..2 {
        node.observe(Observation::SandboxRemoved("s-probed".into()));
        after(2.0).await;
        assert!(node.workers().is_empty(), "AddRemovePods: removed");
    }
}

#[tokio::test(start_paused = true)]
async fn upstream_test_add_remove_pods_with_restartable_init_container() {
    let all = probes(ProbeType::ALL.map(|probe_type| probe(probe_type, json!({}))));
    let with = |more: Value| {
        let mut pod = pod("web", "Always", &[("main", json!({}))]);
        let mut init = merged("side", &more);
        if more.get("restartPolicy").is_some() {
            init.as_object_mut().unwrap().extend(all.as_object().unwrap().clone());
        }
        pod["spec"]["initContainers"] = json!([init]);
        pod
    };
    // An init container with probes is refused as a whole; an init container without probes has no
    // workers.
    let mut node = Node::new(&[with(json!({}))], |_| succeed());
    node.pod("web");
    assert!(node.workers().is_empty(), "no sidecar");
    let mut node = Node::new(&[with(json!({"restartPolicy": "Always"}))], |_| succeed());
    node.pod("web");
    assert_eq!(
        node.workers(),
        ["web/side liveness", "web/side readiness", "web/side startup"],
        "with sidecar"
    );
}

#[tokio::test(start_paused = true)]
async fn workers_start_in_the_order_of_the_containers_with_sidecars_last() {
    let all = || probes(ProbeType::ALL.map(|probe_type| probe(probe_type, json!({}))));
    let mut web = pod("web", "Always", &[("b", all()), ("a", all())]);
    let mut side = merged("side", &all());
    side["restartPolicy"] = json!("Always");
    web["spec"]["initContainers"] = json!([side]);
    let mut node = Node::new(&[web], |_| succeed());
    node.pod("web");
    let started = node.prober.shared.pods().remove(0);
    let started = started.lock();
    let order = started.workers.iter().map(|it| (it.container.as_str(), it.state.probe_type));
    let expected = ["b", "a", "side"].map(|name| [STARTUP, READINESS, LIVENESS].map(|kind| (name, kind)));
    assert_eq!(order.collect::<Vec<_>>(), expected.concat());
}

#[tokio::test(start_paused = true)]
async fn upstream_test_cleanup_pods() {
    let all = || probes(ProbeType::ALL.map(|probe_type| probe(probe_type, json!({}))));
    let names: Vec<String> = (0..100).map(|count| format!("web-{count}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| pod(name, "Always", &[("main", all())])).collect();
    let mut node = Node::new(&pods, |_| succeed());
    for name in &names {
        node.pod(name);
        node.run(&format!("{name}/main"));
    }
    after(3.0).await;
    assert_eq!(node.workers().len(), 300);
    node.observe(Observation::SandboxRemoved("s-web-7".into()));
    after(2.0).await;
    assert_eq!(node.workers().len(), 297, "CleanupPods: only the undesired pod's workers exit");
    assert!(!node.workers().iter().any(|worker| worker.starts_with("web-7/")));
    for _ in 0..10 {
        for name in &names {
            node.observe(Observation::SandboxRemoved(format!("s-{name}")));
        }
    }
    after(2.0).await;
    assert!(node.workers().is_empty(), "CleanupRepeated");
}

#[tokio::test(start_paused = true)]
async fn upstream_test_update_readiness() {
    let is_well = Arc::new(AtomicBool::new(true));
    let plays = is_well.clone();
    let web = pod("web", "Always", &[("main", probes([probe(READINESS, json!({}))]))]);
    let play = move |_: &_| if plays.load(Ordering::Relaxed) { succeed() } else { fail() };
    let mut node = Node::new(&[web], play);
    node.pod("web");
    node.run("web/main");
    after(2.0).await;
    assert!(node.container_of("web/main").is_ready, "UpdateReadiness: success");
    assert!(node.report("web").conditions[1].is_met);
    is_well.store(false, Ordering::Relaxed);
    after(2.0).await;
    assert!(!node.container_of("web/main").is_ready, "UpdateReadiness: failure");
    assert_eq!(node.report("web").conditions[0].reason, Some("ContainersNotReady"));
}

/// Repeats `TestCleanUp` (`worker_test.go`): a worker that is stopped repeatedly exits once, and
/// its result is removed.
#[tokio::test(start_paused = true)]
async fn upstream_test_clean_up() {
    for probe_type in ProbeType::ALL {
        let web = pod("web", "Always", &[("main", probes([probe(probe_type, json!({}))]))]);
        let mut node = Node::new(&[web], |_| succeed());
        node.pod("web");
        node.run("web/main");
        after(2.0).await;
        assert_eq!(node.result("web/main", probe_type), Some(ProbeResult::Success));
        let pod = node.prober.shared.pods().remove(0);
        for _ in 0..10 {
            pod.lock().stop_workers();
        }
        after(2.0).await;
        let inner = pod.lock();
        assert!(
            inner.workers.is_empty() && inner.containers[0].result(probe_type).is_none(),
            "{probe_type:?}"
        );
    }
}

/// Repeats `TestDoProbeWithContainerRestartAllContainers` (`worker_test.go`).
#[tokio::test(start_paused = true)]
async fn upstream_test_do_probe_with_container_restart_all_containers() {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    let probed = |more: Value| {
        let mut container = probes([probe(LIVENESS, json!({}))]);
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        container
    };
    let own = probed(json!({"restartPolicy": "Never", "restartPolicyRules": rules}));
    let containers = [("main", own), ("other", probed(json!({})))];
    let start = async || {
        let mut node = Node::settled(&[pod("web", "Never", &containers)], |_| succeed()).await;
        node.pod("web");
        node.run("web/main");
        node.run("web/other");
        after(2.0).await;
        node
    };
    let is_there = |node: &Node, worker: &str| node.workers().iter().any(|known| known == worker);
    let mut node = start().await;
    node.exit("web/main", 1);
    after(2.0).await;
    assert!(is_there(&node, "web/main liveness"), "own rule matches");
    assert_eq!(node.result("web/main", LIVENESS), Some(ProbeResult::Failure));
    node.exit("web/other", 137);
    after(2.0).await;
    assert!(is_there(&node, "web/other liveness"), "terminated because a sibling triggered");
    node.container("web/other#1", v1::ContainerState::ContainerCreated, 0, None);
    after(2.0).await;
    assert!(is_there(&node, "web/other liveness"), "cleaned up");
    assert_eq!(node.result("web/other", LIVENESS), Some(ProbeResult::Failure), "cleaned up");
    let mut node = start().await;
    node.exit("web/other", 1);
    // Later syncs start no other worker, because the worker of the first container exists.
    after(200.0).await;
    assert!(!is_there(&node, "web/other liveness"), "no rule of its own, and policy Never");
}

/// Repeats `TestProbe` (`prober_test.go`). A probe that is nil, has no handler or has another type
/// does not exist here.
#[tokio::test(start_paused = true)]
async fn upstream_test_probe() {
    let unavailable = || Err(Status::unavailable("gone"));
    for (row, answered, tries, held, message) in [
        ("success", succeed as fn() -> Answered, 1, Some(ProbeResult::Success), None),
        (
            "failure",
            || answer(1, "bad", ""),
            1,
            Some(ProbeResult::Failure),
            Some("Readiness probe failed: bad"),
        ),
        (
            "unknown with error",
            unavailable,
            3,
            Some(ProbeResult::Failure),
            Some(
                "Readiness probe errored and resulted in unknown state: rpc error: code = Unavailable desc = gone",
            ),
        ),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let web =
            pod("web", "Always", &[("main", probes([probe(READINESS, json!({"periodSeconds": 100}))]))]);
        let mut node = Node::settled(&[web], move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            answered()
        })
        .await;
        node.run_pod("web");
        let begin = Instant::now();
        after(0.1).await;
        // A new container is not ready, which triggers a second attempt.
        assert_eq!(calls.load(Ordering::Relaxed), 2 * tries, "{row}");
        assert_eq!(node.result("web/main", READINESS), held, "{row}");
        let events = node.events_since(begin);
        assert_eq!(events.first().map(|(.., message)| message.as_str()), message, "{row}");
    }
}

/// Repeats the rows of `TestProbe` (`prober_test.go`) with arguments and with expansion of
/// variables.
#[tokio::test(start_paused = true)]
async fn upstream_test_probe_with_command_arguments() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    let mut container = probes([probe(
        LIVENESS,
        json!({"exec": {"command": ["some", "$(A)", "$(B)"]}, "timeoutSeconds": 7}),
    )]);
    container["env"] = json!([{"name": "A", "value": "script"}]);
    let mut node = Node::settled(&[pod("web", "Always", &[("main", container)])], move |request| {
        seen.lock().unwrap().push(request.clone());
        succeed()
    })
    .await;
    node.run_pod("web");
    after(0.1).await;
    let requests = requests.lock().unwrap();
    assert_eq!((requests[0].cmd.join(" ").as_str(), requests[0].timeout), ("some script $(B)", 7));
    assert_eq!(requests[0].container_id, "web/main#0");
}

/// Repeats `TestCacheOperations` and `TestUpdates` (`results_manager_test.go`): a result that
/// changes is an update, an equal one is not.
#[tokio::test(start_paused = true)]
async fn upstream_test_cache_operations_and_updates() {
    let web =
        pod("web", "Always", &[("main", probes([probe(READINESS, json!({"initialDelaySeconds": 100}))]))]);
    let mut node = Node::settled(&[web], |_| succeed()).await;
    node.run_pod("web");
    after(0.1).await;
    let pod = node.prober.shared.pods().remove(0);
    let life = ContainerRun { container_id: "web/main#0".into(), would_have_ended: 0 };
    let hold = |result| pod.lock().set_result("main", READINESS, &life, result);
    let get = || node.result("web/main", READINESS);
    assert_eq!(get(), Some(ProbeResult::Failure), "the seed");
    assert!(hold(Some(ProbeResult::Success)), "Updates: changed");
    assert!(!hold(Some(ProbeResult::Success)), "Updates: same");
    assert_eq!(get(), Some(ProbeResult::Success), "CacheOperations: set, get");
    assert!(!hold(None));
    assert_eq!(get(), None, "CacheOperations: remove");
    assert!(hold(Some(ProbeResult::Success)), "Updates: set new");
}
