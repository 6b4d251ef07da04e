//! Calls with missed events: of their start, their end or their exec instance.

use super::*;
use crate::execsync::phases::MissingEvents;
use crate::execsync::watchdog::Watchdog;

/// Starts a second call whose command still runs when the first call, which has lost its events, is
/// recorded.
fn another_begins(scenario: &mut Scenario) {
    scenario.request(2, 300, 5);
    scenario.added(TWO, 304);
    scenario.started(TWO, 314, 40);
}

/// Ends the second call, and checks that its own exec instance explains it.
fn another_ends(scenario: &mut Scenario) {
    scenario.exited(TWO, 4300, 40, 7);
    scenario.ended(2, 4303, 5, Some(7));
    scenario.evidence(2, 4304);
    let records = scenario.records();
    assert!(matches!(&records[..], [(2, Phases::Complete(_))]), "{records:?}");
}

#[test]
fn a_call_without_runtime_events_is_recorded_with_unsupported_phases() {
    let mut scenario = Scenario::new();
    let now = scenario.at(0);
    scenario.tracker.events_available(false, now);
    scenario.request(1, 0, 5);
    scenario.ended(1, 45, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(1, Phases::Unsupported(parts))] if parts.other == MS * 44));
}

#[test]
fn an_interruption_of_events_affects_only_calls_in_flight() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    let now = scenario.at(10);
    scenario.tracker.events_interrupted(now);
    scenario.tracker.events_available(true, now);
    scenario.request(2, 20, 5);
    scenario.ended(1, 45, 5, Some(0));
    let interrupted = MissingEvents::Interrupted;
    assert!(matches!(&scenario.records()[..], [(1, Phases::Missing { what, .. })] if *what == interrupted));
    scenario.added(ONE, 23);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 40, 77, 0);
    scenario.ended(2, 45, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(2, Phases::Complete(_))]));
}

#[test]
fn calls_from_before_a_reconnect_are_marked_as_interrupted() {
    let mut scenario = Scenario::new();
    let now = scenario.at(0);
    scenario.tracker.events_interrupted(now);
    scenario.request(1, 5, 5);
    scenario.tracker.events_available(true, now);
    scenario.ended(1, 45, 5, Some(0));
    let interrupted = MissingEvents::Interrupted;
    assert!(matches!(&scenario.records()[..], [(1, Phases::Missing { what, .. })] if *what == interrupted));
}

#[test]
fn a_call_without_events_does_not_get_the_running_exec_of_another_caller() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    another_begins(&mut scenario);
    scenario.ended(1, 1000, 5, Some(0));
    scenario.tracker.tick(scenario.at(2500));
    let records = scenario.records();
    assert!(matches!(&records[..], [(1, Phases::Missing { .. })]), "{records:?}");
    another_ends(&mut scenario);
}

#[test]
fn an_exit_without_observed_start_is_matched_to_no_call() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    let now = scenario.at(100);
    scenario.tracker.events_interrupted(now);
    scenario.tracker.events_available(true, now);
    another_begins(&mut scenario);
    scenario.ended(1, 1000, 5, Some(7));
    scenario.evidence(1, 1001);
    assert!(matches!(&scenario.records()[..], [(1, Phases::Missing { .. })]));
    scenario.exited(ONE, 1020, 30, 7);
    another_ends(&mut scenario);
}

#[test]
fn a_call_with_interrupted_events_gets_no_running_exec_instance() {
    let mut scenario = Scenario::new();
    let now = scenario.at(0);
    scenario.tracker.events_interrupted(now);
    scenario.request(1, 1, 1);
    scenario.tracker.events_available(true, now);
    // This exec instance belongs to another caller, and exits long before the call is answered.
    scenario.added(ONE, 10);
    scenario.started(ONE, 12, 40);
    scenario.exited(ONE, 30, 40, 0);
    let mut watchdog = Watchdog::default();
    watchdog.check(&scenario.tracker, scenario.at(5900));
    assert!(watchdog.stuck().is_empty());
    scenario.added(TWO, 5950);
    scenario.started(TWO, 5960, 41);
    scenario.ended(1, 6000, 1, Some(3));
    scenario.evidence(1, 6001);
    let records = scenario.records();
    let interrupted = MissingEvents::Interrupted;
    assert!(
        matches!(&records[..], [(1, Phases::Missing { what, .. })] if *what == interrupted),
        "{records:?}"
    );
    assert!(scenario.tracker.sessions.is_empty());
}

#[test]
fn a_late_exit_that_contradicts_the_answer_is_not_assigned_to_the_call() {
    for (at, status, is_its) in [(44, 0, true), (44, 3, false), (3000, 0, false)] {
        let mut scenario = Scenario::new();
        scenario.request(1, 0, 5);
        scenario.added(ONE, 3);
        scenario.started(ONE, 33, 40);
        scenario.ended(1, 45, 5, Some(0));
        scenario.tracker.tick(scenario.at(1100));
        let first = scenario.records();
        assert!(
            matches!(&first[..], [(1, Phases::Missing { what: MissingEvents::Exited, .. })]),
            "{first:?}"
        );
        let (container, exec) = (scenario.container.to_string(), ONE.to_owned());
        let exit = TaskEvent::ExecExited { container, exec, pid: 40, status };
        scenario.event_heard(at, at.max(1200), exit);
        let watched: Vec<u32> = scenario.tracker.sessions.iter().map(|session| session.pid).collect();
        assert_eq!(
            watched,
            if is_its { vec![40] } else { vec![] },
            "the session is watched once the exec instance belongs to the call"
        );
        let amended = scenario.records();
        let is_complete = matches!(&amended[..], [(1, Phases::Complete(_))]);
        let is_missing =
            matches!(&amended[..], [(1, Phases::Missing { what: MissingEvents::Everything, .. })]);
        assert_eq!((is_complete, is_missing), (is_its, !is_its), "{at} {status}: {amended:?}");
    }
}

#[test]
fn a_call_without_observed_start_is_explained() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    scenario.tracker.containers.clear();
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 40, 77, 0);
    scenario.ended(1, 45, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(1, Phases::Complete(_))]), "its events had been kept");
}

#[test]
fn a_call_without_observed_end_is_dropped() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    scenario.tracker.tick(scenario.at(1000));
    assert_eq!(scenario.tracker.in_flight_peaks(), (1, 1));
    scenario.infos.clear();
    scenario.tracker.tick(scenario.at(2000));
    assert_eq!((scenario.tracker.in_flight_peaks(), scenario.tracker.containers().count()), ((0, 0), 0));
}
