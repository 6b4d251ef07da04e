//! `make parity`: Kubernetes' probe and lifecycle test cases on a real containerd, and handlers
//! compared with the kubelet's own code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "the verdict is shown")]

mod grpc_responses;
mod handlers;
mod http2_responses;
mod readers;
mod responses;
mod upstream;

use std::time::Duration;

use fixtures::machine::tool;
use fixtures::need;
use fixtures::scenarios::judge::{cases, judge};
use fixtures::scenarios::lifecycle;
use fixtures::scenarios::parity::dry_run::hold;
use fixtures::scenarios::parity::played::play;
use fixtures::scenarios::parity::rows;
use fixtures::scenarios::restarts;

/// Number of rows that run at the same time. Their probes use processor time, and no probe may fail
/// because of the load.
const AT_ONCE: usize = 8;

/// Rows of all three tables with a kill and a restart: probeshim kills, and a kubelet restarts.
#[test]
fn upstream_cases_with_a_kill_pass_with_probeshim_killing_and_a_kubelet_restarting() {
    need!(restarts::hold(&restarts::of_lifecycle()));
    for is_sidecar in [false, true] {
        let stories = restarts::of_rows(&rows(), is_sidecar);
        for stories in stories.chunks(AT_ONCE) {
            need!(restarts::hold(stories));
        }
    }
}

/// Compares dry-run with a real kubelet. Each of the kubelet's kills was predicted, dry-run
/// predicts no other kill, and both report the same containers as started and ready.
#[test]
fn dry_run_predicts_the_kills_of_a_kubelet() {
    let verdict = need!(judge(&cases(), Duration::from_secs(100)));
    eprintln!("{verdict:#?}");
    assert_eq!(verdict.differences, [""; 0], "{verdict:#?}");
    let [foreseen, not_foreseen, invented] = verdict.agreement;
    assert_eq!((not_foreseen, invented), (0, 0));
    // A kill is predicted for each container that the kubelet stopped. For a container that is
    // being stopped the reason may not be known yet.
    assert!(foreseen >= verdict.kills && foreseen <= verdict.stopped as u64, "{verdict:#?}");
}

#[test]
fn upstream_probing_container_cases_pass_in_dry_run() {
    for rows in rows().chunks(AT_ONCE) {
        need!(hold(rows, false));
    }
}

#[test]
fn upstream_probing_restartable_init_container_cases_pass_in_dry_run() {
    for rows in rows().chunks(AT_ONCE) {
        need!(hold(rows, true));
    }
}

/// Rows of Kubernetes' lifecycle tests that need no API server, with `play`.
#[test]
fn upstream_lifecycle_cases_pass_with_play() {
    let probes = need!(tool("probes-1.36"));
    let (mut rows, mut wrong) = (lifecycle::rows(&probes).into_iter(), Vec::new());
    // Each of the first three rows has fifty containers.
    for count in [1, 1, 1].into_iter().chain(std::iter::repeat(AT_ONCE)) {
        let some: Vec<_> = rows.by_ref().take(count).collect();
        if some.is_empty() {
            break;
        }
        wrong.extend(need!(lifecycle::play(&some)));
    }
    assert_eq!(wrong, [""; 0], "{}", wrong.join("\n"));
}

/// Rows of Kubernetes' probe tests with `play`, which restarts the containers that it kills, and
/// the lifecycle rows with a kill.
#[test]
fn upstream_probe_cases_and_lifecycle_kills_pass_with_play() {
    need!(restarts::play(&restarts::of_lifecycle()));
    for is_sidecar in [false, true] {
        for rows in rows().chunks(AT_ONCE) {
            need!(play(rows, is_sidecar));
        }
    }
}
