//! Would-be kills, and their comparison with the stops of a kubelet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::fixture::*;
use crate::events::reason;
use crate::handler::exec_tests::answer;
use crate::prober::{Agreement, ProbeResult};

#[tokio::test(start_paused = true)]
async fn dry_run_reports_a_would_be_kill_each_time_the_failure_threshold_is_reached() {
    let more = json!({"periodSeconds": 10, "failureThreshold": 3, "initialDelaySeconds": 5});
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, more)]))]);
    let mut node = Node::settled(&[web], |_| answer(1, "broken", "")).await;
    let begin = Instant::now();
    node.run_pod("web");
    after(99.0).await;
    let events = node.events_since(begin);
    let at =
        |what| events.iter().filter(|(_, known, _)| *known == what).map(|(at, ..)| *at).collect::<Vec<_>>();
    // The initial delay skips the first tick, and later an attempt at the tick of each would-be
    // kill.
    assert_eq!(at(reason::WOULD_KILL), [30.0, 60.0, 90.0]);
    assert_eq!(at(reason::UNHEALTHY), [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]);
    let kill = events.iter().find(|(_, what, _)| *what == reason::WOULD_KILL).unwrap();
    assert_eq!(
        kill.2,
        "Container main failed liveness probe, will be restarted (dry-run: would be stopped with a grace period of 30s)"
    );
    let probe = node.probe("web/main", LIVENESS).unwrap();
    assert_eq!((probe.would_have_killed, probe.result), (3, Some(ProbeResult::Success)));
}

#[tokio::test(start_paused = true)]
async fn stops_by_other_clients_are_compared_with_would_be_kills() {
    let web = pod(
        "web",
        "Always",
        &[("main", probes([probe(LIVENESS, json!({"periodSeconds": 10, "failureThreshold": 3}))]))],
    );
    let start = async || {
        let mut node = Node::settled(std::slice::from_ref(&web), |_| fail()).await;
        node.run_pod("web");
        (node, Instant::now())
    };
    let last = |node: &Node, begin| {
        node.events_since(begin).last().map(|(_, what, message)| (*what, message.clone())).unwrap()
    };
    let (node, begin) = start().await;
    after(21.0).await;
    let _call = node.stop("web/main");
    let expected = "The kubelet stops the container 1.0s after the would-be kill for its liveness probe";
    assert_eq!(last(&node, begin), (reason::KILL_PREDICTED, expected.to_owned()));
    // The reason of a stop is known once the container runs again.
    for (seconds, what, expected) in [
        (
            11.0,
            reason::KILL_PREDICTED,
            "The kubelet stops the container; in probeshim, the liveness probe was one failure short of the threshold",
        ),
        (
            1.0,
            reason::KILL_UNPREDICTED,
            "The kubelet has stopped and restarted the container, and no probe result explains it: liveness: 1 of 3 failures, the last: Liveness probe failed: ; last attempt of the kubelet: exit code 1",
        ),
    ] {
        let (mut node, begin) = start().await;
        after(seconds).await;
        node.prober.on_kubelet_exec_end("web/main#0", &["liveness".to_owned()], "exit code 1");
        let call = node.stop("web/main");
        assert_eq!(last(&node, begin).0, reason::UNHEALTHY);
        node.exit("web/main", 137);
        drop(call);
        node.run("web/main#1");
        assert_eq!(last(&node, begin), (what, expected.to_owned()));
        let run = node.probe("web/main", LIVENESS).unwrap().run.length;
        assert_eq!(
            run,
            u32::from(what == reason::KILL_UNPREDICTED),
            "the kubelet and the prober reset their counters"
        );
    }
    // A repeated stop counts once.
    let (mut node, begin) = start().await;
    after(21.0).await;
    for _ in 0..2 {
        drop(node.stop("web/main"));
    }
    node.exit("web/main", 137);
    node.run("web/main#1");
    assert_eq!(node.prober.agreement(), Agreement { predicted: 1, ..Agreement::default() });
    assert_eq!(last(&node, begin).0, reason::KILL_PREDICTED);
    // A container that is stopped with its pod was not killed for its probe.
    let (mut node, begin) = start().await;
    after(1.0).await;
    let calls = (node.stop("web/main"), node.stop_pod("web"));
    node.exit("web/main", 137);
    node.sandbox("web", "s-web", 0, false);
    drop(calls);
    node.sandbox("web", "s-web-1", 1, true);
    assert_eq!(last(&node, begin).0, reason::UNHEALTHY);
    assert_eq!(node.prober.agreement(), Agreement::default());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_exits_by_itself_is_not_reported_as_an_unobserved_kill() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({"periodSeconds": 10}))]))]);
    let mut node = Node::settled(&[web], |_| fail()).await;
    node.run_pod("web");
    after(1.0).await;
    node.exit("web/main", 1);
    let begin = Instant::now();
    for _ in 0..100 {
        node.prober.kubelet_seen();
        after(1.0).await;
    }
    assert_eq!(node.events_since(begin), []);
}

/// The probe fails while the kubelet already runs the hook.
#[tokio::test(start_paused = true)]
async fn stops_that_the_kubelet_has_announced_are_predicted() {
    let mut main = probes([probe(LIVENESS, json!({"failureThreshold": 2, "periodSeconds": 5}))]);
    main["lifecycle"] = json!({"preStop": {"exec": {"command": ["bye"]}}});
    let web = pod("web", "Always", &[("main", main)]);
    let mut node = Node::slow(&[web], |_| (Duration::from_millis(500), fail()));
    node.prober.mark_listed();
    after(SETTLED.as_secs_f64()).await;
    node.run_pod("web");
    after(5.2).await;
    let hook = kubelet_call("ExecSync");
    node.prober.on_kubelet_exec_start("web/main#0", &["bye".to_owned()], &Arc::downgrade(&hook));
    after(3.0).await;
    drop(hook);
    let (begin, _call) = (Instant::now(), node.stop("web/main"));
    let events = node.events_since(begin);
    let expected = "The kubelet stops the container, whose liveness probe has failed";
    assert_eq!(events, [(0.0, reason::KILL_PREDICTED, expected.to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn deletion_of_a_healthy_pod_does_not_count_as_a_kill() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({}))]))]);
    let mut node = Node::settled(&[web], |_| succeed()).await;
    node.run_pod("web");
    after(2.5).await;
    let calls = (node.stop("web/main"), node.stop_pod("web"));
    node.exit("web/main", 0);
    node.sandbox("web", "s-web", 0, false);
    drop(calls);
    assert_eq!(node.prober.agreement(), Agreement::default());
}

#[tokio::test(start_paused = true)]
async fn no_container_of_a_pod_that_is_being_stopped_is_killed() {
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, json!({}))]))]);
    let mut node = Node::settled(&[web], |_| fail()).await;
    let begin = Instant::now();
    node.run_pod("web");
    after(0.5).await;
    assert_eq!(node.events_since(begin).last().unwrap().1, reason::WOULD_KILL);
    let (call, begin) = (node.stop_pod("web"), Instant::now());
    after(10.0).await;
    assert_eq!(node.events_since(begin), []);
    // The call has failed.
    drop(call);
    after(2.0).await;
    assert_eq!(node.events_since(begin).last().unwrap().1, reason::WOULD_KILL);
}

#[tokio::test(start_paused = true)]
async fn would_be_kills_that_the_kubelet_does_not_make_are_reported() {
    for (is_kubelet_there, goes_on) in [(true, false), (true, true), (false, false)] {
        let more = json!({"periodSeconds": 10, "failureThreshold": 3});
        let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, more)]))]);
        let calls = AtomicUsize::new(0);
        let mut node = Node::settled(&[web], move |_| {
            // In the second case the probe never succeeds again.
            if calls.fetch_add(1, Ordering::Relaxed) < 3 || goes_on { fail() } else { succeed() }
        })
        .await;
        node.run_pod("web");
        let begin = Instant::now();
        for _ in 0..100 {
            if is_kubelet_there {
                node.prober.kubelet_seen();
            }
            after(1.0).await;
        }
        let events = node.events_since(begin);
        let message = events
            .iter()
            .find(|(_, what, _)| *what == reason::KILL_NOT_OBSERVED)
            .map(|(_, _, message)| message.as_str());
        // One period of the probe, the duration of its attempt, and two seconds.
        let expected = "The kubelet has not stopped the container for its liveness probe within 12.0s of the would-be kill";
        assert_eq!(message, is_kubelet_there.then_some(expected));
    }
}
