//! `make parity`: tables 9.6 and 9.7 on a real containerd, and handlers beside the kubelet's own code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "the verdict is shown")]

mod handlers;

use std::time::Duration;

use fixtures::machine::tool;
use fixtures::need;
use fixtures::scenarios::judge::{cases, judge};
use fixtures::scenarios::lifecycle;
use fixtures::scenarios::parity::dry_run::hold;
use fixtures::scenarios::parity::played::play;
use fixtures::scenarios::parity::rows;
use fixtures::scenarios::restarts;

/// Rows that are held at once: their probes take processor time, and none may fail for want of it.
const AT_ONCE: usize = 8;

/// The rows of both tables, and of 9.8, that ask for a kill and a restart: probeshim kills, a kubelet restarts.
#[test]
fn tables_9_6_to_9_8_kill_and_restart() {
    need!(restarts::hold(&restarts::of_lifecycle()));
    for is_sidecar in [false, true] {
        let stories = restarts::of_rows(&rows(), is_sidecar);
        for stories in stories.chunks(AT_ONCE) {
            need!(restarts::hold(stories));
        }
    }
}

/// A real kubelet is the judge of dry-run: what it kills was foreseen, nothing else was, and both hold the same to be started and ready.
#[test]
fn a_kubelet_kills_what_was_foreseen() {
    let verdict = need!(judge(&cases(), Duration::from_secs(100)));
    eprintln!("{verdict:#?}");
    assert_eq!(verdict.differences, [""; 0], "{verdict:#?}");
    let [foreseen, not_foreseen, invented] = verdict.agreement;
    assert_eq!((not_foreseen, invented), (0, 0));
    // Every container that it has stopped; of one that is being stopped it may not be known yet what for.
    assert!(foreseen >= verdict.kills && foreseen <= verdict.stopped as u64, "{verdict:#?}");
}

#[test]
fn table_9_6_probing_container() {
    for rows in rows().chunks(AT_ONCE) {
        need!(hold(rows, false));
    }
}

#[test]
fn table_9_7_probing_restartable_init_container() {
    for rows in rows().chunks(AT_ONCE) {
        need!(hold(rows, true));
    }
}

/// The rows of table 9.8 that a node alone can have, with `play`.
#[test]
fn table_9_8_played() {
    let probes = need!(tool("probes-1.36"));
    let (mut rows, mut wrong) = (lifecycle::rows(&probes).into_iter(), Vec::new());
    // The first three have fifty containers each.
    for count in [1, 1, 1].into_iter().chain(std::iter::repeat(AT_ONCE)) {
        let some: Vec<_> = rows.by_ref().take(count).collect();
        if some.is_empty() {
            break;
        }
        wrong.extend(need!(lifecycle::play(&some)));
    }
    assert_eq!(wrong, [""; 0], "{}", wrong.join("\n"));
}

/// The rows of tables 9.6 and 9.7 with `play`, which restarts what it kills, and those of 9.8 that ask for a kill.
#[test]
fn tables_9_6_to_9_8_kill_and_restart_played() {
    need!(restarts::play(&restarts::of_lifecycle()));
    for is_sidecar in [false, true] {
        for rows in rows().chunks(AT_ONCE) {
            need!(play(rows, is_sidecar));
        }
    }
}
