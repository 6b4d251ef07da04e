//! Stuck execs that the watchdog reports.

use super::*;
use crate::execsync::watchdog::{StuckKind, Watchdog};

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
