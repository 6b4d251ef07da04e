//! Tests which of the attempts count that ran while the prober was late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, advance, sleep};

use super::fixture::*;
use crate::events::reason;
use crate::handler::Executor;
use crate::prober::{EnforcementMode, EnforcementSettings, ProbeResult};
use crate::relay::CallIds;
use crate::tap::{Tap, TapConfig, TapEvent, TapMetrics};

/// Returns a pod whose commands take 300 ms each and succeed if the flag is set. Its first attempt
/// starts now.
async fn slow(more: serde_json::Value) -> (Node, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let succeeds = is_well.clone();
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, more)]))]);
    let mut node = Node::slow(&[web], move |_| {
        (Duration::from_millis(300), if succeeds.load(Ordering::Relaxed) { succeed() } else { fail() })
    });
    node.prober.mark_listed();
    sleep(SETTLED).await;
    node.run_pod("web");
    (node, is_well)
}

/// Waits for this number of periods of one second. In each of them the prober is late by half a
/// second during the attempt.
async fn late(periods: u32) {
    for _ in 0..periods {
        after(0.1).await;
        advance(Duration::from_millis(500)).await;
        after(0.4).await;
    }
}

fn kinds(node: &Node, begin: Instant) -> Vec<&'static str> {
    node.events_since(begin).into_iter().map(|(_, what, _)| what).collect()
}

#[tokio::test(start_paused = true)]
async fn late_probe_attempts_are_discarded_but_not_forever() {
    let begin = Instant::now();
    let (node, _) = slow(json!({"failureThreshold": 2})).await;
    late(6).await;
    let (lost, failed) = (reason::PROBE_DISCARDED, reason::UNHEALTHY);
    assert_eq!(kinds(&node, begin), [lost, lost, failed, lost, lost, failed, reason::WOULD_KILL]);
    let events = node.events_since(begin);
    let text = "Liveness probe discarded: the prober was late by more than a tenth of the timeout, and no probe took much of its time: \
                Liveness probe failed: ";
    assert_eq!(events[0].2, text);
    after(2.0).await;
    assert_eq!(kinds(&node, begin)[7..], [failed, failed, reason::WOULD_KILL], "it is not late any more");
}

#[tokio::test(start_paused = true)]
async fn a_discarded_attempt_is_neither_success_nor_failure() {
    let (node, _) = slow(json!({"failureThreshold": 3})).await;
    after(2.0).await;
    assert_eq!(node.probe("web/main", LIVENESS).unwrap().run.length, 2);
    late(1).await;
    let probe = node.probe("web/main", LIVENESS).unwrap();
    assert_eq!((probe.run.length, probe.failures.len(), probe.result), (2, 2, Some(ProbeResult::Success)));
}

#[tokio::test(start_paused = true)]
async fn a_success_within_the_timeout_counts_however_late_the_prober_was() {
    let (node, is_well) = slow(json!({"failureThreshold": 3})).await;
    after(2.0).await;
    is_well.store(true, Ordering::Relaxed);
    late(1).await;
    let run = node.probe("web/main", LIVENESS).unwrap().run;
    assert_eq!((run.last, run.length), (Some(ProbeResult::Success), 1));
}

#[tokio::test(start_paused = true)]
async fn a_success_after_the_timeout_is_discarded_if_the_prober_was_late() {
    let begin = Instant::now();
    let (node, is_well) = slow(json!({})).await;
    is_well.store(true, Ordering::Relaxed);
    after(0.1).await;
    advance(Duration::from_millis(1_500)).await;
    after(0.1).await;
    assert_eq!(kinds(&node, begin), [reason::PROBE_DISCARDED]);
}

#[tokio::test(start_paused = true)]
async fn the_exec_sync_of_a_discarded_attempt_is_reported_once_and_as_discarded() {
    let (tap, mut decoder) = Tap::new(TapConfig::default(), TapMetrics::default());
    let executor = Executor::fake(|_| (Duration::from_millis(300), fail()))
        .with_internal_calls(tap.internal_calls(CallIds::starting_at(1)));
    let more = json!({"failureThreshold": 3});
    let web = pod("web", "Always", &[("main", probes([probe(LIVENESS, more)]))]);
    let dry_run = EnforcementSettings { mode: EnforcementMode::DryRun, ..EnforcementSettings::default() };
    let mut node = Node::enforcing(dry_run, &[web], executor);
    node.prober.mark_listed();
    sleep(SETTLED).await;
    node.run_pod("web");
    after(1.0).await;
    late(2).await;
    after(0.5).await;
    drop((node, tap));
    let mut ended = Vec::new();
    let on_event = |event| {
        if let TapEvent::CallEnded(call) = event {
            ended.push((call.call.id, call.call.exec.unwrap().is_discarded));
        }
    };
    let mut on_event = on_event;
    while decoder.next(&mut on_event).await {}
    assert_eq!(ended[..3], [(1, false), (2, true), (3, true)], "{ended:?}");
}

/// Returns the last event after the kubelet has stopped and restarted the container.
fn stopped_by_kubelet(node: &mut Node, begin: Instant) -> &'static str {
    let call = node.stop("web/main");
    node.exit("web/main", 137);
    drop(call);
    node.run("web/main#1");
    kinds(node, begin).last().unwrap()
}

/// Returns the last event after the kubelet has stopped and restarted a container whose probe
/// failed once, `late_periods` seconds before the stop.
async fn stopped_after_one_failure(late_periods: u32) -> &'static str {
    let begin = Instant::now();
    let (mut node, _) = slow(json!({"failureThreshold": 3})).await;
    after(1.0).await;
    late(late_periods).await;
    stopped_by_kubelet(&mut node, begin)
}

#[tokio::test(start_paused = true)]
async fn discarded_failures_count_when_a_kill_of_the_kubelet_is_compared() {
    assert_eq!(stopped_after_one_failure(0).await, reason::KILL_UNPREDICTED);
    assert_eq!(stopped_after_one_failure(1).await, reason::KILL_PREDICTED);
}

#[tokio::test(start_paused = true)]
async fn discarded_failures_from_before_a_predicted_kill_do_not_count() {
    let begin = Instant::now();
    let (mut node, _) = slow(json!({"failureThreshold": 4, "periodSeconds": 2})).await;
    late(1).await;
    after(8.5).await;
    assert_eq!(kinds(&node, begin).last(), Some(&reason::WOULD_KILL));
    // The probe fails twice more, and the time limit of the predicted kill passes.
    after(4.0).await;
    assert_eq!(stopped_by_kubelet(&mut node, begin), reason::KILL_UNPREDICTED);
}
