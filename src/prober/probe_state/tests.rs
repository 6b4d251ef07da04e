//! Repeats the tests of the kubelet's `prober/worker_test.go`. The fixture of those tests is a pod
//! with restartPolicy Never, one container, and a probe that runs every second and whose thresholds
//! are 1.

use crate::manifest::{ContainerSpec, Handler, RestartPolicy, RestartRule, Source};
use std::time::Duration;

use super::*;

/// Returns a probe that runs every second.
pub(crate) fn probe() -> Probe {
    Probe {
        handler: Handler::Exec(vec!["true".to_owned()]),
        initial_delay: 0,
        timeout: 1,
        period: 1,
        success_threshold: 1,
        failure_threshold: 1,
        termination_grace_period: None,
        source: Source::Manifest,
    }
}

/// A probe state with its inputs, and the result that is stored for it.
struct Fixture {
    machine: ProbeState,
    view: PodView,
    now: Instant,
    held: Option<ProbeResult>,
}

/// Change of the fixture.
type Change = fn(&mut Fixture);

/// Whether the worker continues.
const CONTINUE: bool = true;
const STOP: bool = false;

impl Fixture {
    fn new(probe_type: ProbeType) -> Self {
        Self::with(probe_type, probe())
    }

    fn with(probe_type: ProbeType, probe: Probe) -> Self {
        let now = Instant::now();
        let seen = ContainerView {
            run: life("c"),
            state: ObservedState::Running(now),
            role: ContainerKind::Regular,
            is_started: probe_type != ProbeType::Startup,
            is_restarted: false,
            predates_prober: false,
            ends: Terminating::None,
        };
        let view = PodView { is_pod_over: false, container: Some(seen) };
        Self { machine: ProbeState::new(probe_type, Arc::new(probe)), view, now, held: None }
    }

    fn seen(&mut self) -> &mut ContainerView {
        self.view.container.as_mut().unwrap()
    }

    /// Runs a tick in which an attempt has this result. Returns whether the worker continues.
    fn turn(&mut self, result: ProbeResult) -> bool {
        let mut updates = Vec::new();
        let next = self.machine.next_action(&self.view, self.now, &mut updates);
        if next == NextAction::Attempt {
            self.machine.record_result(result, &mut updates);
        }
        for effect in updates {
            self.held = match effect {
                ResultUpdate::Remove(_) => None,
                ResultUpdate::Set(_, result) => Some(result),
            };
        }
        next != NextAction::Exit
    }

    /// Runs a tick for each result. Returns the stored result and the length of the result run
    /// after each.
    fn turns(&mut self, results: &[ProbeResult]) -> Vec<(ProbeResult, u32)> {
        let mut turn = |result: &ProbeResult| {
            assert!(self.turn(*result));
            (self.held.unwrap(), self.machine.run.length)
        };
        results.iter().map(&mut turn).collect()
    }
}

fn life(container: &str) -> ContainerRun {
    ContainerRun { container_id: container.into(), would_have_ended: 0 }
}

const SUCCESS: ProbeResult = ProbeResult::Success;
const FAILURE: ProbeResult = ProbeResult::Failure;
const UNKNOWN: ProbeResult = ProbeResult::Unknown;

#[test]
fn upstream_test_do_probe() {
    for probe_type in ProbeType::ALL {
        let is_readiness = probe_type == ProbeType::Readiness;
        let started = |fixture: &mut Fixture| fixture.seen().is_started = probe_type != ProbeType::Startup;
        let rows: [(&str, Change, bool, Option<ProbeResult>); 8] = [
            ("no status", |it| it.view.container = None, CONTINUE, None),
            ("pod failed", |it| it.view.is_pod_over = true, STOP, None),
            ("pod deletion", |it| it.seen().ends = Terminating::Pod, is_readiness, Some(SUCCESS)),
            ("no container status", |it| it.view.container = None, CONTINUE, None),
            ("container waiting", |it| it.seen().state = ObservedState::Waiting, CONTINUE, Some(FAILURE)),
            (
                "container terminated",
                |it| it.seen().state = ObservedState::Terminated(Some(0)),
                STOP,
                Some(FAILURE),
            ),
            ("probe successful", |_| {}, CONTINUE, Some(SUCCESS)),
            (
                "initial delay passed",
                |it| {
                    it.machine.probe = Arc::new(Probe { initial_delay: 100, ..probe() });
                    it.now += Duration::from_secs(100);
                },
                CONTINUE,
                Some(SUCCESS),
            ),
        ];
        for (row, change, goes_on, held) in rows {
            let mut fixture = Fixture::new(probe_type);
            started(&mut fixture);
            change(&mut fixture);
            assert_eq!(fixture.turn(SUCCESS), goes_on, "DoProbe: {row}, {probe_type:?}");
            assert_eq!(fixture.held, held, "DoProbe: {row}, {probe_type:?}");
        }
    }
}

#[test]
fn upstream_test_do_probe_with_container_restart_rules() {
    use RestartPolicy::{Always, Never, OnFailure};
    let rule = |codes: &[i32]| vec![RestartRule { is_in: true, codes: codes.into(), restarts_all: false }];
    for (row, policy, restart_rules, exit_code, goes_on) in [
        ("failed, container policy OnFailure", OnFailure, vec![], 1, CONTINUE),
        ("succeeded, OnFailure", OnFailure, vec![], 0, STOP),
        ("failed, Always", Always, vec![], 1, CONTINUE),
        ("succeeded, Always", Always, vec![], 0, CONTINUE),
        ("failed, Never", Never, vec![], 1, STOP),
        ("succeeded, Never", Never, vec![], 0, STOP),
        ("matching rule", Never, rule(&[1]), 1, CONTINUE),
        ("non-matching rule", Never, rule(&[99]), 1, STOP),
    ] {
        let spec = ContainerSpec { restart_policy: Some(policy), restart_rules, ..ContainerSpec::named("c") };
        let mut fixture = Fixture::new(ProbeType::Liveness);
        fixture.seen().state = ObservedState::Terminated(Some(exit_code));
        fixture.seen().is_restarted = spec.is_restarted(Never, exit_code);
        assert_eq!(fixture.turn(SUCCESS), goes_on, "RestartRules: {row}");
        assert_eq!(fixture.held, Some(FAILURE), "RestartRules: {row}");
    }
}

#[test]
fn upstream_test_initial_delay() {
    for (probe_type, first) in
        [(ProbeType::Startup, UNKNOWN), (ProbeType::Readiness, FAILURE), (ProbeType::Liveness, SUCCESS)]
    {
        let mut fixture = Fixture::with(probe_type, Probe { initial_delay: 10, ..probe() });
        assert_eq!(fixture.turns(&[SUCCESS])[0].0, first, "InitialDelay: just started");
        fixture.now += Duration::from_secs(100);
        assert_eq!(fixture.turns(&[SUCCESS])[0].0, SUCCESS, "InitialDelay: started 100 s ago");
    }
}

#[test]
fn upstream_test_failure_and_success_threshold() {
    let mut fixture = Fixture::with(ProbeType::Readiness, Probe { failure_threshold: 3, ..probe() });
    for round in 0..2 {
        let held = fixture.turns(&[SUCCESS, SUCCESS, SUCCESS, FAILURE, FAILURE, FAILURE, FAILURE]);
        let held: Vec<_> = held.into_iter().map(|(held, _)| held).collect();
        let expected = [SUCCESS, SUCCESS, SUCCESS, SUCCESS, SUCCESS, FAILURE, FAILURE];
        assert_eq!(held, expected, "FailureThreshold, round {round}");
    }
    let mut fixture = Fixture::with(ProbeType::Readiness, Probe { success_threshold: 3, ..probe() });
    for round in 0..2 {
        let held = fixture.turns(&[SUCCESS, SUCCESS, SUCCESS, SUCCESS, FAILURE]);
        let held: Vec<_> = held.into_iter().map(|(held, _)| held).collect();
        assert_eq!(held, [FAILURE, FAILURE, SUCCESS, SUCCESS, FAILURE], "SuccessThreshold, round {round}");
    }
}

#[test]
fn upstream_test_startup_probe_success_and_failure_threshold() {
    let three = || Probe { failure_threshold: 3, ..probe() };
    let mut fixture = Fixture::with(ProbeType::Startup, three());
    assert_eq!(fixture.turns(&[SUCCESS]), [(SUCCESS, 0)], "StartupProbeSuccessThreshold");
    assert!(fixture.machine.on_hold, "StartupProbeSuccessThreshold");
    let mut fixture = Fixture::with(ProbeType::Startup, three());
    let turns = fixture.turns(&[FAILURE; 4]);
    let expected = [(UNKNOWN, 1), (UNKNOWN, 2), (FAILURE, 0), (FAILURE, 0)];
    assert_eq!(turns, expected, "StartupProbeFailureThreshold, ResultRunOnStartupCheckFailure");
    assert!(fixture.machine.on_hold, "StartupProbeFailureThreshold");
}

#[test]
fn upstream_test_on_hold_on_liveness_or_startup_check_failure() {
    for probe_type in [ProbeType::Liveness, ProbeType::Startup] {
        let mut fixture = Fixture::new(probe_type);
        let turns = fixture.turns(&[FAILURE, SUCCESS, SUCCESS]);
        assert_eq!(turns, [(FAILURE, 0); 3], "OnHoldOnLivenessOrStartupCheckFailure: {probe_type:?}");
        assert!(fixture.machine.on_hold);
        fixture.seen().run = life("another");
        assert_eq!(fixture.turns(&[SUCCESS])[0].0, SUCCESS, "a new container ID: {probe_type:?}");
        assert_eq!(fixture.machine.on_hold, probe_type == ProbeType::Startup);
    }
    let mut fixture = Fixture::with(ProbeType::Liveness, Probe { failure_threshold: 3, ..probe() });
    let turns = fixture.turns(&[SUCCESS, FAILURE, FAILURE, FAILURE]);
    let expected = [(SUCCESS, 1), (SUCCESS, 1), (SUCCESS, 2), (FAILURE, 0)];
    assert_eq!(turns, expected, "ResultRunOnLivenessCheckFailure");
}

/// A result run continues in the next container, so one more failure may be enough.
#[test]
fn a_result_run_continues_in_the_next_container() {
    let mut fixture = Fixture::with(ProbeType::Liveness, Probe { failure_threshold: 3, ..probe() });
    assert_eq!(fixture.turns(&[FAILURE, FAILURE]), [(SUCCESS, 1), (SUCCESS, 2)]);
    fixture.seen().run = life("another");
    assert_eq!(fixture.turns(&[FAILURE]), [(FAILURE, 0)]);
}

#[test]
fn upstream_test_do_probe_of_terminated_containers_with_policy_never() {
    for (row, role, goes_on) in [
        ("Terminated sidecar, pod policy Never", ContainerKind::Sidecar, CONTINUE),
        ("Terminated regular container, pod policy Never", ContainerKind::Regular, STOP),
    ] {
        let spec = ContainerSpec { role, ..ContainerSpec::named("c") };
        let mut fixture = Fixture::new(ProbeType::Startup);
        fixture.seen().state = ObservedState::Terminated(Some(1));
        fixture.seen().is_restarted = spec.is_restarted(RestartPolicy::Never, 1);
        assert_eq!((fixture.turn(SUCCESS), fixture.held), (goes_on, Some(FAILURE)), "{row}");
    }
}

#[test]
fn upstream_test_liveness_and_startup_probe_disabled_by_started() {
    let mut fixture = Fixture::new(ProbeType::Liveness);
    fixture.seen().is_started = false;
    assert_eq!(fixture.turns(&[FAILURE])[0].0, SUCCESS, "LivenessProbeDisabledByStarted: not started");
    fixture.seen().is_started = true;
    assert_eq!(fixture.turns(&[FAILURE])[0].0, FAILURE, "LivenessProbeDisabledByStarted: started");
    let mut fixture = Fixture::with(ProbeType::Startup, Probe { failure_threshold: 3, ..probe() });
    assert_eq!(
        fixture.turns(&[FAILURE, SUCCESS]).map_held(),
        [UNKNOWN, SUCCESS],
        "StartupProbeDisabledByStarted"
    );
    fixture.seen().is_started = true;
    assert_eq!(fixture.turns(&[FAILURE]).map_held(), [SUCCESS], "StartupProbeDisabledByStarted: started");
}

trait Held {
    fn map_held(self) -> Vec<ProbeResult>;
}

impl Held for Vec<(ProbeResult, u32)> {
    fn map_held(self) -> Vec<ProbeResult> {
        self.into_iter().map(|(held, _)| held).collect()
    }
}

/// Tests the kubelet with the gate `ChangeContainerStatusOnKubeletRestart` off, which is the
/// default. With the gate on, the kubelet gives every container the initial value, which is not
/// implemented here.
#[test]
fn upstream_test_change_container_status_on_kubelet_restart() {
    let first = ProbeResult::initial_value;
    for probe_type in ProbeType::ALL {
        // No attempt has been made yet, so the stored result is the initial value.
        let waiting = || Fixture::with(probe_type, Probe { initial_delay: 100, ..probe() });
        let mut fixture = waiting();
        fixture.seen().predates_prober = true;
        fixture.turn(SUCCESS);
        assert_eq!(fixture.held, None, "gate off, started before the kubelet: {probe_type:?}");
        let mut fixture = waiting();
        fixture.turn(SUCCESS);
        assert_eq!(fixture.held, Some(first(probe_type)), "gate off, new: {probe_type:?}");
        let mut fixture = waiting();
        (fixture.seen().predates_prober, fixture.seen().is_started) = (true, true);
        fixture.seen().role = ContainerKind::Sidecar;
        fixture.turn(SUCCESS);
        let seeded = (probe_type == ProbeType::Startup).then_some(SUCCESS);
        assert_eq!(fixture.held, seeded, "sidecar that survived, Started=true: {probe_type:?}");
    }
}

#[test]
fn the_initial_delay_counts_in_whole_seconds() {
    let mut fixture = Fixture::with(ProbeType::Readiness, Probe { initial_delay: 2, ..probe() });
    fixture.now += Duration::from_millis(1_999);
    assert_eq!(fixture.turns(&[SUCCESS]).map_held(), [FAILURE]);
    fixture.now += Duration::from_millis(1);
    assert_eq!(fixture.turns(&[SUCCESS]).map_held(), [SUCCESS]);
}

#[test]
fn only_readiness_is_probed_in_a_container_that_is_being_stopped() {
    for probe_type in ProbeType::ALL {
        let mut fixture = Fixture::new(probe_type);
        fixture.seen().ends = Terminating::Container;
        let expected =
            if probe_type == ProbeType::Readiness { FAILURE } else { ProbeResult::initial_value(probe_type) };
        assert_eq!((fixture.turn(FAILURE), fixture.held), (CONTINUE, Some(expected)), "{probe_type:?}");
    }
}
