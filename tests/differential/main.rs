//! `make differential`: the same manifests on a real kubelet and on `play`, each with its own
//! containerd. The pods of both are observed from outside and compared. Also a kubelet that probes
//! through probeshim, which executes the commands itself or leaves them to the runtime.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what differs is shown")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fixtures::machine::tool;
use fixtures::need;
use fixtures::scenarios::differential::{
    Timing, compared, compared_across_a_crash, compared_start_times, noise,
};
use fixtures::scenarios::probe_routes::observe;
use fixtures::scenarios::story::{Case, cases, groups};

/// Lock that lets one test run at a time, because each uses the whole machine.
static TURN: Mutex<()> = Mutex::new(());

/// Number of pods that are observed at the same time on each side. Their probes use processor time,
/// and no probe may fail because of the load.
const AT_ONCE: usize = 8;

/// Duration of an observation.
const WATCHED: Duration = Duration::from_secs(60);

/// Pods that run during a crash of the runtime. Their probes may not fail by chance: exec probes
/// fail as long as the runtime is down.
const STEADY: [&str; 6] = [
    "crash-loop",
    "everything-of-a-spec",
    "image-never-there",
    "init-in-order",
    "on-failure-succeeds",
    "sidecar-of-job",
];

/// Returns the pods of `tests/e2e/pods`, or those that the variable `PODS` names, separated by
/// blanks.
fn selected(probes: &Path) -> Vec<Case> {
    let mut cases = cases(probes);
    if let Ok(names) = std::env::var("PODS") {
        cases.retain(|case| names.split_whitespace().any(|name| name == case.name));
    }
    cases
}

/// Each pod behaves on `play` as on a kubelet.
#[test]
fn play_behaves_as_a_kubelet() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = need!(tool("probes-1.36"));
    let mut differences = Vec::new();
    for cases in groups(selected(&probes), AT_ONCE) {
        differences.extend(need!(compared(&cases, WATCHED, Timing::Compared)));
    }
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}

/// Two kubelets do not differ. This verifies that the tolerance of jitter is large enough.
#[test]
fn two_kubelets_do_not_differ_in_the_comparison() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = need!(tool("probes-1.36"));
    let mut differences = Vec::new();
    for cases in groups(selected(&probes), AT_ONCE) {
        differences.extend(need!(noise(&cases, WATCHED)));
    }
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}

/// The first attempts and the ends of containers whose probes fail are distributed as on a kubelet.
#[test]
fn times_of_attempts_and_kills_after_a_start_are_distributed_as_on_a_kubelet() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (differences, table) = need!(compared_start_times());
    eprint!("{table}");
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}

/// A crash of the runtime has the same effect on the pods of `play` and of a kubelet.
#[test]
fn play_behaves_as_a_kubelet_across_a_crash_of_the_runtime() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cases = selected(&need!(tool("probes-1.36")));
    cases.retain(|case| STEADY.contains(&case.name.as_str()));
    let differences = need!(compared_across_a_crash(&cases, WATCHED));
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}

/// A kubelet concludes the same from exec probes that probeshim executes itself as from those that
/// the runtime executes.
#[test]
fn a_kubelet_concludes_the_same_from_direct_and_forwarded_probes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (forwarded, direct) = (need!(observe("runtime")), need!(observe("direct")));
    let differences = forwarded.conclusions.differences(&direct.conclusions);
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
    assert!(direct.probes >= 20, "{}", direct.probes);
    for (probe, attempts) in &forwarded.attempts {
        assert_eq!(attempts.direct, 0, "{probe:?} is left to the runtime");
    }
    let mut executed = 0;
    for ((pod, command), attempts) in &direct.attempts {
        eprintln!(
            "{pod}: {} of {} attempts were executed directly: {command}",
            attempts.direct, attempts.all
        );
        assert!(attempts.is_unstartable || attempts.direct > 0, "{pod}: {command}");
        executed += usize::from(attempts.direct > 0);
    }
    assert!(executed >= 20, "{executed} probes were executed directly");
    let conclusions = &direct.conclusions;
    let count = |lines: &BTreeMap<String, BTreeSet<String>>| lines.values().map(BTreeSet::len).sum::<usize>();
    let (statuses, events) = (count(&conclusions.statuses), count(&conclusions.events));
    eprintln!("{} probes: {statuses} lines of statuses and {events} events are equal", direct.probes);
}
