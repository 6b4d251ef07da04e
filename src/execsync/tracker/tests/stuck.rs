//! Stuck execs that the watchdog reports.

use std::collections::HashSet;

use super::*;
use crate::execsync::evidence::{SampleRequest, ZombieParent, ZombieReport, Zombies};
use crate::execsync::watchdog::{StuckExec, StuckKind, Watchdog};

#[test]
fn stuck_execs_are_reported_until_they_end() {
    let (mut scenario, mut watchdog) = (Scenario::new(), Watchdog::default());
    scenario.request(1, 0, 1);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    let mut kinds = |scenario: &Scenario, at: u32| -> Vec<StuckKind> {
        watchdog.check(&scenario.tracker, scenario.at(at));
        watchdog.stuck().keys().map(|(kind, _)| *kind).collect()
    };
    assert_eq!(kinds(&scenario, 5900), []);
    assert_eq!(kinds(&scenario, 6100), [StuckKind::Overdue]);
    scenario.exited(ONE, 7000, 77, 0);
    assert_eq!(kinds(&scenario, 12_100), [StuckKind::Overdue, StuckKind::Unanswered]);
    // The exec instance of another caller, which may be the call's according to the events, changes
    // nothing.
    scenario.added(TWO, 12_200);
    scenario.started(TWO, 12_210, 78);
    scenario.exited(TWO, 12_300, 78, 0);
    assert_eq!(kinds(&scenario, 12_400), [StuckKind::Overdue, StuckKind::Unanswered]);
    scenario.ended(1, 13_000, 1, None);
    assert_eq!(kinds(&scenario, 13_100), []);
    scenario.request(2, 14_000, i64::MAX);
    assert_eq!(kinds(&scenario, 90_000), [], "a timeout that no clock can show is never over");
}

#[test]
fn a_call_is_stuck_because_of_the_timeout_if_its_command_was_killed_at_that_time() {
    let (mut scenario, mut watchdog) = (Scenario::new(), Watchdog::default());
    scenario.request(1, 0, 1);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 1050, 77, 137);
    watchdog.check(&scenario.tracker, scenario.at(6100));
    let kinds: Vec<StuckKind> = watchdog.stuck().keys().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [StuckKind::TimedOut], "neither overdue nor held after an exit");
    let message = watchdog.stuck().values().next().unwrap().event(Duration::from_secs(5)).message;
    assert!(message.contains("was killed at its timeout: a child holds the output"), "{message}");
}

/// Returns `count` zombies whose youngest is of the exec with pid `session`.
fn zombies(count: u32, session: u32) -> Zombies {
    let parent = ZombieParent { pid: 7, name: "sleep".to_owned(), is_first_process: true };
    Zombies { count, name: "sh".to_owned(), session, parent }
}

#[test]
fn zombies_are_counted_by_container_until_they_are_gone() {
    let (mut scenario, mut watchdog) = (Scenario::new(), Watchdog::default());
    for (call, exec, pid) in [(1, ONE, 77), (2, TWO, 78)] {
        let at = pid * 10;
        scenario.request(call, at, 1);
        scenario.added(exec, at + 3);
        scenario.started(exec, at + 30, pid);
        scenario.exited(exec, at + 40, pid, 0);
        scenario.ended(call, at + 50, 1, Some(0));
        scenario.tracker.flush(scenario.at(at + 60));
    }
    for session in scenario.tracker.sessions.drain(..) {
        watchdog.watch(session);
    }
    let container = scenario.container.clone();
    let mut found = Vec::new();
    for (seconds, report) in [
        (6, ZombieReport::Unconfirmed(None)),
        (12, ZombieReport::Counted(Some(zombies(1, 77)))),
        (18, ZombieReport::Unchanged),
        (24, ZombieReport::Counted(Some(zombies(2, 78)))),
        (30, ZombieReport::Counted(Some(zombies(3, 99)))),
        (36, ZombieReport::Counted(None)),
    ] {
        let now = scenario.at(seconds * 1000);
        watchdog.check(&scenario.tracker, now);
        let [SampleRequest::SessionProcesses { execs, .. }] = &watchdog.sample_requests[..] else {
            panic!("{:?}", watchdog.sample_requests);
        };
        assert_eq!(*execs, HashSet::from([77, 78]));
        watchdog.sample_requests.clear();
        watchdog.on_leftovers(&container, &[], now);
        watchdog.on_zombies(&container, report, now);
        let shown = watchdog.stuck().values().next().cloned();
        found.push(shown.map(|stuck| (stuck.call, stuck.zombies.unwrap().count)));
    }
    assert_eq!(found, [None, Some((1, 1)), Some((1, 1)), Some((2, 2)), Some((2, 3)), None]);
    watchdog.check(&scenario.tracker, scenario.at(90_000));
    assert!(watchdog.sample_requests.is_empty(), "without execs and zombies, nothing is read");
}

#[test]
fn zombies_are_an_event_each_time_their_number_has_reached_a_power_of_two() {
    let (mut watchdog, mut scenario) = (Watchdog::default(), Scenario::new());
    scenario.request(1, 0, 1);
    watchdog.check(&scenario.tracker, scenario.at(7000));
    let stuck = |count| {
        let stuck = watchdog.stuck().values().next().unwrap().clone();
        StuckExec { kind: StuckKind::Zombies, zombies: Some(zombies(count, 1)), ..stuck }
    };
    let pairs = [(1, 2), (2, 3), (3, 4), (4, 7), (7, 12), (12, 7)];
    let is_event = pairs.map(|(before, now)| stuck(now).has_doubled_since(&stuck(before)));
    assert_eq!(is_event, [true, false, true, false, true, false]);
    let message = stuck(12).event(Duration::ZERO).message;
    let expected = "12 processes that ExecSyncs started are zombies, of which call 1 left the youngest (sh): the first \
                    process of the container (pid 7, sleep) does not wait for them";
    assert_eq!(message, expected);
}
