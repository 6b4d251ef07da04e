//! Calls whose events are received.

use super::*;
use crate::execsync::analysis::TimeoutMargin;
use crate::execsync::cause::Cause;
use crate::execsync::phases::{MissingEvents, PhaseDurations};
use crate::manifest::{ExecPurpose, Source};
use crate::object_ref::ContainerRef;

fn parts(phases: [u64; 6]) -> PhaseDurations {
    let [queue, prepare, start, run, drain, other] = phases.map(Duration::from_millis);
    PhaseDurations {
        queue,
        prepare: Some(prepare),
        start: Some(start),
        run: Some(run),
        drain: Some(drain),
        other,
    }
}

#[test]
fn a_call_is_recorded_once_all_its_events_are_known() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 40, 77, 0);
    assert!(scenario.records().is_empty());
    scenario.ended(1, 45, 5, Some(0));
    assert_eq!(scenario.records(), [(1, Phases::Complete(parts([1, 2, 30, 7, 5, 0])))]);
    assert_eq!(scenario.tracker.sessions.pop().unwrap().pid, 77);
    scenario.tracker.tick(scenario.at(2000));
    assert_eq!(scenario.tracker.containers().count(), 0, "nothing is left of it");
}

#[test]
fn the_output_of_a_failed_command_is_kept_only_if_it_belongs_to_a_known_probe() {
    let use_of = |purpose| ProbeMatch::Matched {
        uses: vec![purpose],
        source: Source::Manifest,
        period: Some(Duration::from_secs(1)),
    };
    let probe = use_of(ExecPurpose::Liveness);
    let hook = use_of(ExecPurpose::PreStop);
    for (probe_match, kept) in [(probe, Some("no")), (hook, None), (ProbeMatch::Unknown, None)] {
        let mut scenario = Scenario::new();
        scenario.place =
            CallContext { probe_match, container: Some(Arc::default()), ..CallContext::default() };
        scenario.request(1, 0, 5);
        scenario.added(ONE, 3);
        scenario.started(ONE, 33, 77);
        scenario.exited(ONE, 40, 77, 1);
        let exec = ExecCall { output: Some("no".into()), ..Scenario::exec(5, Some(1)) };
        scenario.ended_with(1, 45, exec, CallOutcome::Completed(Some(Code::OK)));
        scenario.evidence(1, 46);
        assert_eq!(scenario.record().call.exec.as_ref().unwrap().output.as_deref(), kept);
    }
}

#[test]
fn a_late_exit_is_awaited_and_an_absent_exit_is_recorded_as_missing() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.ended(1, 45, 5, Some(0));
    assert!(scenario.records().is_empty());
    assert_eq!(scenario.tracker.next_tick(), Some(scenario.at(1045)));
    let mut other = Scenario::new();
    other.request(1, 0, 5);
    other.added(ONE, 3);
    other.started(ONE, 33, 77);
    other.ended(1, 45, 5, Some(0));

    scenario.exited(ONE, 40, 77, 0);
    assert!(matches!(&scenario.records()[..], [(1, Phases::Complete(_))]));
    other.tracker.tick(other.at(1045));
    let [(1, Phases::Missing { parts, what: MissingEvents::Exited })] = &other.records()[..] else {
        panic!("not missing")
    };
    assert_eq!((parts.start, parts.run, parts.other), (Some(MS * 30), None, MS * 12));
}

#[test]
fn concurrent_calls_are_matched_once_all_events_are_known() {
    let mut scenario = Scenario::new();
    for id in [1, 2] {
        scenario.request(id, 0, 5);
    }
    for (exec, pid) in [(ONE, 77), (TWO, 78)] {
        scenario.added(exec, 3);
        scenario.started(exec, 33, pid);
    }
    scenario.exited(ONE, 40, 77, 4);
    scenario.ended(2, 45, 5, Some(4));
    scenario.evidence(2, 46);
    assert!(scenario.records().is_empty(), "the other may be about to exit with the same code");
    scenario.exited(TWO, 47, 78, 0);
    assert!(matches!(&scenario.records()[..], [(2, Phases::Complete(_))]));
    scenario.ended(1, 50, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(1, Phases::Complete(_))]));
}

#[test]
fn concurrent_identical_calls_are_ambiguous() {
    let mut scenario = Scenario::new();
    for (id, exec) in [(1, ONE), (2, TWO)] {
        scenario.request(id, 0, 5);
        scenario.added(exec, 3);
        scenario.started(exec, 33, 77);
        scenario.exited(exec, 40, 77, 0);
    }
    scenario.ended(1, 45, 5, Some(0));
    assert!(scenario.records().is_empty(), "the other's exit code may tell them apart");
    scenario.ended(2, 45, 5, Some(0));
    let records = scenario.records();
    assert_eq!(records.len(), 2, "nothing more can tell");
    for (_, phases) in records {
        let Phases::Ambiguous { candidates, count, .. } = phases else { panic!("{phases:?}") };
        assert_eq!((candidates.as_slice(), count), (&[ONE.into(), TWO.into()][..], 2));
    }
}

#[test]
fn a_call_among_very_many_is_recorded_as_ambiguous_when_it_ends() {
    let mut scenario = Scenario::new();
    for id in 1..=40 {
        let exec = format!("{id:064x}");
        scenario.request(id, 0, 5);
        scenario.added(&exec, 3);
        scenario.started(&exec, 33, 77);
        scenario.exited(&exec, 40, 77, 0);
    }
    for id in 1..=8 {
        scenario.ended(id, 45, 5, Some(0));
        assert!(
            matches!(&scenario.records()[..], [(ended, Phases::Ambiguous { count: 40, .. })] if *ended == id)
        );
    }
    scenario.ended(9, 45, 5, Some(0));
    assert!(scenario.records().is_empty(), "32 calls are told apart by their exit codes");
}

#[test]
fn a_timed_out_call_is_recorded_with_the_outcome_of_its_command() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 1);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 1035, 77, 137);
    scenario.ended(1, 1040, 1, None);
    scenario.evidence(1, 1041);
    let insight = scenario.record().analysis.unwrap();
    let command_outcome = insight.command_outcome.unwrap();
    assert_eq!(
        (command_outcome.started, command_outcome.exited, command_outcome.is_killed()),
        (Some(MS * 33), Some(MS * 1035), Some(true))
    );
    assert_eq!(
        (insight.margin, insight.assessment),
        (Some(TimeoutMargin::Over(40 * MS)), Assessment::Failed)
    );
}

#[test]
fn a_command_that_outlives_its_call_amends_the_record() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 1);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.ended_with(1, 500, Scenario::exec(1, None), CallOutcome::ClientReset(h2::Reason::CANCEL));
    scenario.evidence(1, 501);
    scenario.tracker.tick(scenario.at(1500));
    let early = scenario.record();
    assert!(!early.is_amended && early.analysis.unwrap().command_outcome.unwrap().exited.is_none());
    scenario.exited(ONE, 9000, 77, 137);
    let late = scenario.record();
    let command_outcome = late.analysis.as_ref().unwrap().command_outcome.unwrap();
    assert_eq!((late.is_amended, late.call.id, command_outcome.exited), (true, 1, Some(MS * 9000)));
    assert!(matches!(late.analysis.unwrap().phases, Phases::Complete(_)));
    assert_eq!(scenario.tracker.sessions.len(), 1, "the session is watched once");
}

#[test]
fn a_call_with_an_undecodable_answer_is_matched_to_its_exited_command() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 40);
    scenario.exited(ONE, 77, 40, 3);
    scenario.ended_with(1, 80, Scenario::exec(5, None), CallOutcome::Completed(Some(Code::OK)));
    scenario.evidence(1, 81);
    let records = scenario.records();
    assert!(matches!(records[..], [(1, Phases::Complete(_))]), "{records:?}");
}

#[test]
fn a_container_that_becomes_known_during_a_call_is_recorded_with_it() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    let known = ContainerRef { name: Some("main".to_owned()), ..ContainerRef::default() };
    scenario.place = CallContext { container: Some(Arc::new(known)), ..CallContext::default() };
    scenario.ended(1, 45, 5, Some(0));
    scenario.tracker.flush(scenario.at(46));
    let record = scenario.record();
    assert_eq!(record.call.container.as_ref().unwrap().name.as_deref(), Some("main"));
}

#[test]
fn the_exit_of_a_command_that_could_not_start_is_not_awaited() {
    let mut scenario = Scenario::new();
    scenario.request(1, 0, 5);
    scenario.added(ONE, 3);
    let unknown = CallOutcome::Completed(Some(Code(2)));
    scenario.ended_with(1, 45, Scenario::exec(5, None), unknown);
    scenario.evidence(1, 46);
    assert!(
        matches!(&scenario.records()[..], [(1, Phases::Complete(parts))] if parts.start == Some(MS * 42))
    );
    scenario.tracker.tick(scenario.at(2000));
    assert_eq!(scenario.tracker.containers().count(), 0, "no exit of it is waited for");
}

#[test]
fn exec_instances_are_forgotten_after_their_container_exits() {
    let mut scenario = Scenario::new();
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.tracker.tick(scenario.at(100_000));
    assert_eq!(scenario.tracker.containers().count(), 1, "it runs");
    let now = scenario.at(100_000);
    scenario.tracker.container_exited("c0ffee", now);
    scenario.tracker.tick(scenario.at(103_000));
    assert_eq!(scenario.tracker.containers().count(), 0);
}

#[test]
fn a_command_that_ended_with_its_container_is_recorded_with_that_cause() {
    let recorded = |exits: bool| {
        let mut scenario = Scenario::new();
        scenario.request(1, 0, 5);
        scenario.added(ONE, 3);
        scenario.started(ONE, 33, 77);
        scenario.exited(ONE, 40, 77, 137);
        scenario.ended(1, 45, 5, Some(137));
        scenario.evidence(1, 46);
        assert!(scenario.tracker.records.is_empty(), "the event of the container may be late");
        if exits {
            let now = scenario.at(60);
            scenario.tracker.container_exited("c0ffee", now);
        }
        let end = scenario.at(if exits { 61 } else { 1045 });
        scenario.tracker.tick(end);
        scenario.record()
    };
    assert_eq!(Cause::all(&recorded(true)), [Cause::ContainerExited]);
    assert_eq!(Cause::all(&recorded(false)), [Cause::ExitCode(137)]);
}

#[test]
fn a_command_that_the_kernel_killed_with_its_container_ran_out_of_memory() {
    /// Times at which the memory was used up, each with the arrival of its event.
    type OomEvents<'a> = &'a [(u32, u32)];
    let recorded = |before: OomEvents<'_>, during: OomEvents<'_>| {
        let mut scenario = Scenario::new();
        scenario.added(TWO, 1);
        scenario.exited(TWO, 4, 66, 137);
        for (at, heard) in before {
            scenario.out_of_memory(*at, *heard);
        }
        scenario.request(1, 10, 5);
        scenario.added(ONE, 13);
        scenario.started(ONE, 33, 77);
        for (at, heard) in during {
            scenario.out_of_memory(*at, *heard);
        }
        scenario.exited(ONE, 40, 77, 137);
        scenario.ended(1, 45, 5, Some(137));
        scenario.evidence(1, 46);
        let now = scenario.at(60);
        scenario.tracker.container_exited("c0ffee", now);
        let end = scenario.at(61);
        scenario.tracker.tick(end);
        Cause::all(&scenario.record())
    };
    assert_eq!(recorded(&[], &[(38, 38)]), [Cause::OutOfMemory]);
    assert_eq!(recorded(&[(5, 5)], &[]), [Cause::ContainerExited], "before the call");
    assert_eq!(recorded(&[], &[(5, 38)]), [Cause::ContainerExited], "the event of an earlier call is late");
    assert_eq!(recorded(&[], &[(38, 38), (5, 39)]), [Cause::OutOfMemory], "a late event hides no other one");
}
