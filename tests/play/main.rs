//! `probeshim play` on a real containerd: its pods behave as on a kubelet. These tests have their
//! own binary because many pods would disturb tests that measure calls.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fixtures::machine::tool;
use fixtures::need;
use fixtures::scenarios::differential::{Timing, compared};
use fixtures::scenarios::play::{crowd, rotates_logs, tell};
use fixtures::scenarios::story::{cases, groups};
use fixtures::scenarios::survival;

/// Lock that lets one test run at a time. Each uses most of the machine, and no test may fail
/// because of the load.
static TURN: Mutex<()> = Mutex::new(());

/// Number of stories at the same time. Their probes use processor time, and no probe may fail
/// because of the load.
const AT_ONCE: usize = 16;

/// The pod of each manifest in `tests/e2e/pods` behaves as the manifest's story expects.
#[test]
fn played_pods_behave_as_their_stories_expect() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = need!(tool("probes-1.36"));
    let cases = cases(&probes);
    assert!(cases.len() >= 25, "{} manifests", cases.len());
    let mut wrong = Vec::new();
    for cases in groups(cases, AT_ONCE) {
        wrong.extend(need!(tell(&cases)));
    }
    assert_eq!(wrong, [""; 0]);
}

/// Short form of `make differential`: a few of the pods behave as on a kubelet. `make differential`
/// compares the durations, because they depend on the machine. The stories check that nothing
/// happens too early.
#[test]
fn played_pods_behave_as_on_a_kubelet() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = need!(tool("probes-1.36"));
    let few = [
        "crash-loop",
        "everything-of-a-spec",
        "exec-liveness-dies",
        "grace-of-probe",
        "init-retries",
        "never-liveness",
        "sidecars-in-order",
    ];
    let cases: Vec<_> = cases(&probes).into_iter().filter(|case| few.contains(&case.name.as_str())).collect();
    let differences = need!(compared(&cases, Duration::from_secs(35), Timing::Ignored));
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}

/// Containers of crictl are restarted through the relay, also after kills of probeshim, until
/// crictl removes them.
#[test]
fn containers_of_crictl_are_restarted_until_crictl_releases_them() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    need!(survival::of_crictl());
}

#[test]
fn played_pods_survive_random_kills_of_probeshim() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    need!(survival::walks(1));
}

#[test]
fn twenty_played_pods_start_are_probed_and_end() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(need!(crowd(20)), [""; 0]);
}

#[test]
fn logs_of_played_containers_are_rotated_and_lose_no_line() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(need!(rotates_logs()), [""; 0]);
}
