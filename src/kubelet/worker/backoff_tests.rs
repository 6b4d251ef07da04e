//! Delays until a container that ends repeatedly runs again. The tests compute the pod actions and
//! the back-off of each sync, in paused time, with a runtime that does everything immediately.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::compute_actions::tests::{running, runtime_status};
use super::compute_actions::{ActionInputs, compute_pod_actions};
use super::requeue::SYNC_FREQUENCY;
use super::start_container::check_backoff;
use crate::kubelet::backoff::{Backoff, BackoffError};
use crate::kubelet::runtime_status::{InstanceState, RuntimePodStatus};
use crate::manifest::ProbeType;
use crate::manifest::reader::tests::pod;
use crate::prober::ProbeResult;

/// Cause of a container's end.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    ByItself,
    /// The container is stopped because a probe of this type has failed.
    By(ProbeType),
}

/// Returns the seconds between each end of a container and its next start, if each instance runs
/// for `lives` seconds.
async fn waits<const COUNT: usize>(ends: Ends, lives: u64) -> [u64; COUNT] {
    let probes = "livenessProbe: {exec: {command: [x]}}, startupProbe: {exec: {command: [x]}}";
    let pod = pod(&format!("{{containers: [{{name: main, image: i, {probes}}}]}}"));
    let container = pod.container("main").unwrap();
    let (crashes, started) = (Backoff::default(), Instant::now());
    let now = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) + started.elapsed();
    let mut runtime = runtime_status(vec![running(&pod, "main")]);
    let mut waited = [0; COUNT];
    for (number, wait) in waited.iter_mut().enumerate() {
        sleep(Duration::from_secs(lives)).await;
        let died = Instant::now();
        if ends == Ends::ByItself {
            exit(&mut runtime, now());
        }
        loop {
            let before = runtime.clone();
            let probe_result = |_: &str, kind| (Ends::By(kind) == ends).then_some(ProbeResult::Failure);
            let actions = compute_pod_actions(ActionInputs {
                pod: &pod,
                runtime_status: &before,
                probe_result: &probe_result,
                probe_spec: Some(&pod.spec),
                restart_pending: &|_| false,
            });
            assert!(!actions.kill_pod && actions.containers_to_start == ["main"], "{actions:?}");
            for _ in &actions.containers_to_kill {
                exit(&mut runtime, now());
            }
            match check_backoff(&crashes, &pod, container, &before, now()) {
                Ok(()) => break,
                Err(BackoffError { until, .. }) => {
                    sleep(until.duration_since(now()).unwrap().min(SYNC_FREQUENCY)).await;
                }
            }
        }
        *wait = died.elapsed().as_secs();
        let mut next = running(&pod, "main");
        next.id = format!("main-{}", number + 1).into();
        next.attempt = u32::try_from(number).unwrap() + 1;
        runtime.containers.insert(0, next);
        let old: Vec<Arc<str>> = runtime.garbage().map(|instance| instance.id.clone()).collect();
        runtime.containers.retain(|instance| !old.contains(&instance.id));
    }
    waited
}

/// Ends the newest instance.
fn exit(runtime: &mut RuntimePodStatus, now: SystemTime) {
    let newest = &mut runtime.containers[0];
    assert_eq!(newest.state, InstanceState::Running);
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    (newest.state, newest.exit_code) = (InstanceState::Exited, 1);
    newest.finished_at = i64::try_from(since.as_nanos()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_container_that_exits_by_itself_has_a_doubling_back_off() {
    assert_eq!(waits(Ends::ByItself, 0).await, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(waits(Ends::ByItself, 3).await, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(waits(Ends::ByItself, 300).await, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
}

#[tokio::test(start_paused = true)]
async fn the_back_off_is_reset_for_a_container_that_ran_ten_minutes() {
    assert_eq!(waits(Ends::ByItself, 400).await, [0, 10, 20, 40, 80, 160, 240, 10, 20]);
    assert_eq!(waits(Ends::ByItself, 599).await, [0, 10, 10, 10]);
    assert_eq!(waits(Ends::ByItself, 601).await, [0; 4]);
}

#[tokio::test(start_paused = true)]
async fn the_back_off_after_a_probe_kill_counts_from_the_end_of_the_previous_instance() {
    for kind in ProbeType::KILLING {
        assert_eq!(waits(Ends::By(kind), 35).await, [0, 0, 0, 0, 40, 80, 160, 300]);
        assert_eq!(waits(Ends::By(kind), 3).await, [0, 0, 10, 20, 40, 80, 160, 300]);
        assert_eq!(waits(Ends::By(kind), 10).await, [0, 0, 0, 20, 40, 80, 160, 300]);
        assert_eq!(waits(Ends::By(kind), 400).await, [0; 8]);
    }
}
