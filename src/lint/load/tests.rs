//! Tests of the lints about load.

use super::*;
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
            "In the calls that are kept (4), the phases queue, prepare and start took 12.0s of 12.0s, and 0 timed out.",
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
                "It was 4.00s of 12.0s (33 %) in the calls that are kept: 4.",
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
