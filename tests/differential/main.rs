//! `make differential`: the same manifests for a real kubelet and for `play`, one containerd each, watched from outside and compared.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what differs is shown")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fixtures::machine::tool;
use fixtures::need;
use fixtures::scenarios::differential::{Timing, compared, noise};
use fixtures::scenarios::story::cases;

/// Whose turn it is: each of these takes all of a machine.
static TURN: Mutex<()> = Mutex::new(());

/// Pods that are watched at once on each side: their probes take processor time, and none may fail for want of it.
const AT_ONCE: usize = 8;

/// For how long they are watched.
const WATCHED: Duration = Duration::from_secs(60);

/// Every manifest lives the same life with `play` as with a kubelet.
#[test]
fn play_does_as_a_kubelet_does() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = need!(tool("probes-1.36"));
    let mut differences = Vec::new();
    for cases in cases(&probes).chunks(AT_ONCE) {
        differences.extend(need!(compared(cases, WATCHED, Timing::Compared)));
    }
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}

/// Two kubelets live the same life, by the same measure: what is taken for jitter is no more and no less.
#[test]
fn a_kubelet_does_as_a_kubelet_does() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = need!(tool("probes-1.36"));
    let mut differences = Vec::new();
    for cases in cases(&probes).chunks(AT_ONCE) {
        differences.extend(need!(noise(cases, WATCHED)));
    }
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}
