//! `probeshim play` on a real containerd: pods that live as they would with a kubelet. Apart from what measures calls, which many pods would
//! disturb.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fixtures::machine::tool;
use fixtures::need;
use fixtures::scenarios::differential::{Timing, compared};
use fixtures::scenarios::play::{crowd, rotates_logs, tell};
use fixtures::scenarios::story::cases;
use fixtures::scenarios::survival;

/// Whose turn it is: each of these takes most of a machine, and none may fail for want of it.
static TURN: Mutex<()> = Mutex::new(());

/// Stories that are told at once: their probes take processor time, and none may fail for want of it.
const AT_ONCE: usize = 16;

/// Every manifest of the folder lives as its story tells.
#[test]
fn pods_live_as_their_stories_tell() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = need!(tool("probes-1.36"));
    let cases = cases(&probes);
    assert!(cases.len() >= 25, "{} manifests", cases.len());
    let mut wrong = Vec::new();
    for cases in cases.chunks(AT_ONCE) {
        wrong.extend(need!(tell(cases)));
    }
    assert_eq!(wrong, [""; 0]);
}

/// The short form of `make differential`: a few of them live the same life with a kubelet. How long they live is for `make differential`, because
/// it depends on the machine; that nothing happens too early is for the stories.
#[test]
fn pods_live_as_with_a_kubelet() {
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

/// What crictl makes lives on through the relay, and through kills of probeshim, until crictl lets it go.
#[test]
fn what_crictl_makes_lives_on_until_it_is_let_go() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    need!(survival::of_crictl());
}

#[test]
fn pods_live_through_kills_of_who_plays_them() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    need!(survival::walks(1));
}

#[test]
fn twenty_pods_come_up_are_probed_and_go_away() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(need!(crowd(20)), [""; 0]);
}

#[test]
fn logs_are_rotated_and_lose_no_line() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(need!(rotates_logs()), [""; 0]);
}
