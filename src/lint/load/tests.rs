//! Tests of the lints about load.

use super::*;
use crate::execsync::{Assessment, Slow};
use crate::history::timeline::Period;
use crate::lint::fixture::{CallDraft, Fixture, only};

const SECOND: Duration = Duration::from_secs(1);

fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
    only(super::lint, facts, lint)
}

fn slow(change: impl Fn(&mut CallDraft)) -> Fixture {
    Fixture::new().attempts(20, 10).slow_with(4, 3000, change)
}

#[test]
fn more_calls_in_flight_than_the_node_has_cpu_for_are_a_storm() {
    let in_flight = |node, cpu| {
        slow(move |call| {
            let evidence = call.evidence();
            evidence.in_flight = (1, node);
            evidence.node_pressure = Some(PressureStall { cpu, ..PressureStall::default() });
            let parts = call.parts();
            std::mem::swap(&mut parts.start, &mut parts.run);
        })
    };
    let frequent = Fixture::new().attempts(3000, 10);
    assert_eq!(found(frequent, "probe-storm"), None, "a probe that is frequent is no storm");
    assert_eq!(found(in_flight(9, SECOND), "probe-storm"), None);
    assert_eq!(found(in_flight(64, Duration::ZERO), "probe-storm"), None, "calls that wait are no storm");
    let found = found(in_flight(64, SECOND), "probe-storm").unwrap();
    assert_eq!(
        found.sentence,
        "4 slow or failed attempts had up to 64 ExecSyncs in flight on the node, with 4 processors: it has too \
         little CPU to start them in time."
    );
    assert_eq!(
        found.evidence,
        [
            "The busiest minute had 24 attempts, 0.4 per second.",
            "In 4 recorded calls, the phases queue, prepare and start took 12.0s of 12.0s, and 0 timed out.",
            "Most attempts, of 1 probe in all: shop/web-0 main liveness (kubelet) (24).",
        ]
    );
    assert_eq!((found.severity, found.subject), (Severity::Warning, LintSubject::NODE));
}

#[test]
fn processes_that_wait_for_a_resource_in_slow_calls_are_found() {
    let stalled = |stall: PressureStall| slow(move |call| call.evidence().container_pressure = Some(stall));
    let none = PressureStall::default();
    for (stall, lint, name) in [
        (PressureStall { cpu: SECOND, ..none }, "busy-node", "a processor"),
        (PressureStall { io: SECOND, ..none }, "slow-disk", "I/O"),
        (PressureStall { memory: SECOND, ..none }, "memory-pressure", "memory"),
    ] {
        let some = found(stalled(stall), lint).unwrap();
        let expected = format!(
            "In 4 of 4 slow attempts (100 %), processes waited for {name} for at least a tenth of the time."
        );
        assert_eq!((some.sentence, some.subject.text()), (expected, "shop/web-0 main".to_owned()));
        assert_eq!(
            some.evidence,
            [
                "It was 4.00s of 12.0s (33 %) in 4 recorded calls.",
                "The processes were those of the container in 4 calls, and those of the node in 0 calls.",
            ]
        );
        assert_eq!(found(stalled(none), lint), None);
        let quick = Fixture::new().calls(9, 10, move |call| {
            call.exit(1);
            call.evidence().container_pressure = Some(stall);
        });
        assert_eq!(found(quick, lint), None, "a call that fails quickly is not slow");
        let short = PressureStall { cpu: stall.cpu / 2, io: stall.io / 2, memory: stall.memory / 2 };
        assert_eq!(found(stalled(short), lint), None, "the time is too short to be the reason");
    }
}

#[test]
fn the_disk_of_the_node_delays_the_start_of_commands() {
    let waits = |is_start| {
        slow(move |call| {
            let stall = PressureStall { io: SECOND, ..PressureStall::default() };
            call.evidence().node_pressure = Some(stall);
            call.evidence().container_pressure = Some(PressureStall::default());
            let parts = call.parts();
            if is_start {
                std::mem::swap(&mut parts.start, &mut parts.run);
            }
        })
    };
    assert_eq!(found(waits(false), "slow-disk"), None, "the container did not wait");
    let evidence = found(waits(true), "slow-disk").unwrap().evidence;
    assert!(evidence[1].ends_with("and those of the node in 4 calls."), "{evidence:?}");
}

#[test]
fn a_storm_is_no_busy_node() {
    let storm = slow(|call| {
        call.evidence().container_pressure = Some(PressureStall { cpu: SECOND, ..PressureStall::default() });
        call.evidence().in_flight = (1, 64);
    });
    assert_eq!(found(storm, "busy-node"), None);
}

#[test]
fn containers_that_wait_for_the_same_disk_are_one_finding_about_the_node() {
    let stalled = |stall: PressureStall| {
        let slow = |facts: Fixture, container: &str, count| {
            let facts = facts.probe("liveness", |probe| container.clone_into(&mut probe.container));
            facts.attempts(20, 10).slow_with(count, 3000, move |call| {
                call.evidence().container_pressure = Some(stall);
            })
        };
        let facts = slow(slow(slow(Fixture::new(), "a", 4), "b", 6), "c", 2);
        slow(facts, "d", 5).build()
    };
    let none = PressureStall::default();
    let found = |period: &Period, lint: &str| -> Vec<LintFinding> {
        crate::lint::lint(period).into_iter().filter(|finding| finding.lint == lint).collect()
    };
    for (stall, lint) in [
        (PressureStall { io: SECOND, ..none }, "slow-disk"),
        (PressureStall { cpu: SECOND, ..none }, "busy-node"),
    ] {
        let period = stalled(stall);
        let [one] = &found(&period, lint)[..] else { panic!("{lint}") };
        assert!(
            one.sentence.starts_with("In 15 of 15 slow attempts (100 %) of 3 containers, processes waited")
        );
        assert_eq!((one.subject.clone(), one.affected, one.calls.len()), (LintSubject::NODE, 15, 10));
        assert_eq!(
            one.evidence[2],
            "Containers with the number of these attempts: shop/web-0 b (6), shop/web-0 d (5), shop/web-0 a (4)."
        );
        assert!(one.calls.is_sorted(), "{:?}", one.calls);
        let is_b = |subject: &LintSubject| subject.container.as_deref() == Some("b");
        let mut selected = crate::lint::lint_selected(&period, is_b);
        selected.retain(|finding| finding.lint == lint);
        let [of_b] = &selected[..] else { panic!("{selected:?}") };
        assert_eq!((of_b.lint, of_b.affected, of_b.subject.text().as_str()), (lint, 6, "shop/web-0 b"));
    }
    let memory = found(&stalled(PressureStall { memory: SECOND, ..none }), "memory-pressure");
    let affected: Vec<u32> = memory.iter().map(|finding| finding.affected).collect();
    assert_eq!(affected, [6, 5, 4], "each container has its own memory limit");
}

#[test]
fn a_busy_node_does_no_harm_to_attempts_that_take_as_long_as_usual_and_half_of_their_timeout() {
    let usual = slow(|call| {
        call.evidence().node_pressure = Some(PressureStall { cpu: SECOND, ..PressureStall::default() });
        call.analysis.assessment = Assessment::Slow(Slow::Threshold);
    });
    assert_eq!(found(usual, "busy-node"), None);
}
