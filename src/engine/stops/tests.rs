//! Tests of the reasons of stops.

use std::time::Duration;

use super::*;
use crate::cri::v1::{ContainerMetadata, ContainerState, PodSandboxMetadata};
use crate::cri::{Code, ContainerObservation, SandboxObservation};
use crate::execsync::{Assessment, ExecAnalysis, PhaseDurations, Phases, ProbeMatch};
use crate::manifest::{ExecPurpose, Source as ProbeSource};
use crate::object_ref::ContainerRef;
use crate::relay::{CallOutcome, Peer};
use crate::tap::{ExecCall, ExecResult, Observation};

/// Ids of the sandbox and of the first container.
const SANDBOX: &str = "sandbox";
const MAIN: &str = "main-0";

/// A node with a container that a kubelet runs. Times are in seconds after its start.
struct ObservedNode {
    observer: StopObserver,
    inventory: Arc<Inventory>,
    start: SystemTime,
    monotonic: Instant,
    calls: u64,
    /// Thresholds of probes besides that of the first purpose.
    thresholds: Vec<(ExecPurpose, u32)>,
    events: Vec<(&'static str, String)>,
}

impl ObservedNode {
    fn new() -> Self {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let mut node = Self {
            observer: StopObserver::since(start),
            inventory: Arc::default(),
            start,
            monotonic: Instant::now(),
            calls: 0,
            thresholds: Vec::new(),
            events: Vec::new(),
        };
        node.observe(0, sandbox(true));
        node.observe(0, container(0, ContainerState::ContainerRunning));
        node
    }

    /// Returns a node whose container has run for three seconds when the observation begins.
    fn observed_later() -> Self {
        let mut node = Self::new();
        node.observer = StopObserver::since(node.start + Duration::from_secs(3));
        let started = node.inventory.container(MAIN).unwrap().clone();
        node.observer.on_change(&Change::ContainerStarted(started), node.start, node.monotonic);
        node
    }

    fn observe(&mut self, second: u64, item: Observation) {
        let now = self.monotonic + Duration::from_secs(second);
        let changes = self.inventory.fold(Source::Call, now, now, vec![item]);
        for change in &changes {
            self.observer.on_change(change, self.start + Duration::from_secs(second), now);
        }
    }

    /// Adds an attempt that takes no time.
    fn attempt(
        &mut self,
        second: u64,
        uses: &[ExecPurpose],
        command: &str,
        exit_code: i32,
        threshold: Option<u32>,
    ) {
        let timeout_seconds = i64::from(uses != [ExecPurpose::PostStart]);
        self.calls += 1;
        let start = self.start + Duration::from_secs(second);
        let mut call = Call::sample(self.calls, "/runtime.v1.RuntimeService/ExecSync", start, Duration::ZERO);
        call.ending = CallOutcome::Completed(Some(Code::OK));
        call.container = Some(Arc::new(ContainerRef {
            id: Some(MAIN.to_owned()),
            name: Some("main".to_owned()),
            attempt: Some(0),
        }));
        call.peer = Some(Arc::new(Peer { uid: 0, pid: None, program: Some("kubelet".to_owned()) }));
        call.exec = Some(Box::new(ExecCall {
            command: vec![command.to_owned()],
            timeout_seconds,
            result: Some(ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 }),
            ..ExecCall::default()
        }));
        self.observer.on_call_ended(&call);
        let identity = match uses {
            [] => ProbeMatch::Unknown,
            _ => ProbeMatch::Matched { uses: uses.to_vec(), source: ProbeSource::Manifest, period: None },
        };
        let analysis = ExecAnalysis {
            identity,
            phases: Phases::Complete(PhaseDurations::default()),
            margin: None,
            command_outcome: None,
            container_exited: false,
            assessment: Assessment::Fine,
            evidence: None,
        };
        let record = CallRecord::unanalyzed(call, None, None);
        let record = CallRecord { analysis: Some(Arc::new(analysis)), ..record };
        let thresholds: Vec<(ExecPurpose, u32)> =
            uses.first().copied().zip(threshold).into_iter().chain(self.thresholds.clone()).collect();
        let event = self.observer.on_record(&record, &thresholds);
        self.add(event.into_iter().collect());
    }

    /// Stops the container, as a kubelet or another client does.
    fn stop(&mut self, second: u64, is_kubelet: bool) {
        let container = self.inventory.container(MAIN).unwrap().clone();
        let (at, now) =
            (self.start + Duration::from_secs(second), self.monotonic + Duration::from_secs(second));
        let events = self.observer.on_stop(&container, is_kubelet, at, now);
        self.add(events);
    }

    /// Returns the events until this time that were not returned before.
    fn events(&mut self, second: u64) -> Vec<(&'static str, String)> {
        let events = self.observer.take_events(&self.inventory, self.monotonic + Duration::from_secs(second));
        self.add(events);
        std::mem::take(&mut self.events)
    }

    fn add(&mut self, events: Vec<ContainerEvent>) {
        self.events.extend(events.into_iter().map(|(_, event)| (event.reason, event.message)));
    }
}

fn sandbox(is_ready: bool) -> Observation {
    let metadata =
        PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "shop".into(), attempt: 0 };
    Observation::Sandbox(SandboxObservation {
        id: SANDBOX.into(),
        metadata: Some(metadata),
        is_ready: Some(is_ready),
        ..SandboxObservation::default()
    })
}

fn container(attempt: u32, state: ContainerState) -> Observation {
    Observation::Container(ContainerObservation {
        id: format!("main-{attempt}"),
        sandbox: Some(SANDBOX.into()),
        metadata: Some(ContainerMetadata { name: "main".into(), attempt }),
        state: Some(state),
        ..ContainerObservation::default()
    })
}

fn killed(probe: &str, details: &str) -> Vec<(&'static str, String)> {
    vec![(
        reason::KILLING,
        format!("Container main failed {probe} probe, and the kubelet stopped it ({details}"),
    )]
}

const LIVENESS: &[ExecPurpose] = &[ExecPurpose::Liveness];

#[test]
fn a_stop_after_the_last_failure_of_a_liveness_probe_is_a_kill() {
    let mut node = ObservedNode::new();
    node.attempt(1, LIVENESS, "check", 0, Some(2));
    node.attempt(11, LIVENESS, "check", 1, Some(2));
    node.attempt(21, LIVENESS, "check", 1, Some(2));
    node.stop(21, true);
    assert_eq!(node.events(21), killed("liveness", "2 failures in a row, 21.0s after its start): check"));
    node.stop(22, true);
    assert_eq!(node.events(30), [], "a repeated stop has no event");
}

#[test]
fn a_stop_before_the_failure_threshold_is_the_end_of_the_pod() {
    let mut node = ObservedNode::new();
    node.attempt(11, LIVENESS, "check", 1, Some(3));
    node.attempt(21, LIVENESS, "check", 1, Some(3));
    node.stop(21, true);
    assert_eq!(node.events(22), [], "the pod may continue");
    node.observer.on_sandbox_stop(SANDBOX);
    assert_eq!(node.events(23), [(reason::KILLING, "Stopping container main".to_owned())]);
}

#[test]
fn a_startup_probe_with_the_command_of_the_liveness_probe_is_the_one_that_never_succeeded() {
    let both = &[ExecPurpose::Liveness, ExecPurpose::Startup];
    let mut node = ObservedNode::new();
    node.attempt(5, both, "check", 1, Some(1));
    node.stop(5, true);
    assert_eq!(node.events(6), [], "the threshold of the startup probe is unknown");
    node.observe(6, container(1, ContainerState::ContainerRunning));
    assert_eq!(
        node.events(7),
        killed("startup", "1 failure in a row, 5.0s after its start, no success before): check")
    );
}

#[test]
fn a_liveness_probe_with_the_command_of_the_startup_probe_kills_after_the_first_success() {
    let both = &[ExecPurpose::Startup, ExecPurpose::Liveness];
    let mut node = ObservedNode::new();
    node.thresholds = vec![(ExecPurpose::Liveness, 2)];
    for (second, exit_code) in [(1, 1), (2, 0), (5, 1), (8, 1)] {
        node.attempt(second, both, "check", exit_code, Some(30));
    }
    node.stop(8, true);
    assert_eq!(node.events(8), killed("liveness", "2 failures in a row, 8.0s after its start): check"));
}

#[test]
fn a_container_that_ran_before_probeshim_may_have_had_a_success() {
    let both = &[ExecPurpose::Startup, ExecPurpose::Liveness];
    let mut node = ObservedNode::observed_later();
    node.thresholds = vec![(ExecPurpose::Liveness, 2)];
    node.attempt(5, both, "check", 1, Some(30));
    node.attempt(8, both, "check", 1, Some(30));
    node.stop(8, true);
    node.observe(9, container(1, ContainerState::ContainerRunning));
    assert_eq!(node.events(9), killed("startup or liveness", "8.0s after its start): check"));
}

#[test]
fn failures_before_probeshim_started_may_have_reached_the_threshold() {
    let mut node = ObservedNode::observed_later();
    node.thresholds = vec![(ExecPurpose::Liveness, 3)];
    node.attempt(5, &[ExecPurpose::Liveness], "check", 1, Some(30));
    node.stop(5, true);
    node.observe(9, container(1, ContainerState::ContainerRunning));
    assert_eq!(node.events(9), killed("liveness", "5.0s after its start): check"));
}

#[test]
fn an_unknown_command_that_failed_is_the_reason_if_the_pod_continues() {
    let fail = |node: &mut ObservedNode| {
        node.attempt(4, &[ExecPurpose::Readiness], "ready", 1, Some(1));
        node.attempt(5, &[], "check", 1, None);
        node.stop(5, true);
    };
    let mut node = ObservedNode::new();
    fail(&mut node);
    assert_eq!(node.events(6), []);
    node.observe(7, container(0, ContainerState::ContainerExited));
    assert_eq!(node.events(8), [], "the sandbox may be stopped next");
    assert_eq!(
        node.events(9),
        killed("a", "1 failure in a row, 5.0s after its start, no success before): check")
    );
    let mut ending = ObservedNode::new();
    fail(&mut ending);
    ending.observe(7, container(0, ContainerState::ContainerExited));
    ending.observe(7, sandbox(false));
    assert_eq!(ending.events(9), [(reason::KILLING, "Stopping container main".to_owned())]);
}

#[test]
fn a_stop_without_a_failure_in_a_pod_that_continues_has_no_exec_probe_as_its_reason() {
    let mut node = ObservedNode::new();
    node.attempt(5, LIVENESS, "check", 0, Some(1));
    node.stop(6, true);
    node.observe(7, container(1, ContainerState::ContainerRunning));
    let message = crate::kill::ObservedKill::without_failure("main");
    assert_eq!(node.events(8), [(reason::KILLING, message)]);
}

#[test]
fn attempts_of_two_probes_with_one_command_are_not_counted_together() {
    let both = &[ExecPurpose::Liveness, ExecPurpose::Readiness];
    let mut node = ObservedNode::new();
    node.attempt(1, both, "check", 0, Some(2));
    for second in [11, 12, 21] {
        node.attempt(second, both, "check", 1, Some(2));
    }
    node.stop(21, true);
    let events = node.events(21);
    let kill = killed("liveness", "21.0s after its start): check");
    assert_eq!(events.last(), kill.last(), "{events:?}");
    assert!(events.iter().all(|(_, message)| !message.contains("in a row")), "{events:?}");
}

#[test]
fn a_stop_after_a_failed_post_start_hook_names_the_hook() {
    let hook = &[ExecPurpose::PostStart];
    let mut node = ObservedNode::new();
    node.attempt(1, hook, "register", 1, None);
    node.stop(1, true);
    node.observe(2, container(1, ContainerState::ContainerRunning));
    let message = "The postStart hook of the container main exited with 1, and the kubelet stopped it";
    assert_eq!(node.events(3), [(reason::FAILED_POST_START_HOOK, message.to_owned())]);
    let mut node = ObservedNode::new();
    node.attempt(1, hook, "register", 0, None);
    node.stop(1, true);
    node.observe(2, container(1, ContainerState::ContainerRunning));
    assert_eq!(node.events(3), [(reason::KILLING, crate::kill::ObservedKill::without_failure("main"))]);
}

#[test]
fn a_stop_by_another_client_has_an_event_at_once() {
    let mut node = ObservedNode::new();
    node.attempt(5, LIVENESS, "check", 1, Some(1));
    node.stop(6, false);
    assert_eq!(node.events(6), [(reason::KILLING, "Stopping container main".to_owned())]);
}

#[test]
fn readiness_that_is_lost_and_comes_back_has_events() {
    let ready = &[ExecPurpose::Readiness];
    let mut node = ObservedNode::new();
    for (second, exit_code) in [(1, 1), (2, 1), (3, 0), (4, 1), (5, 1), (6, 1), (7, 0)] {
        node.attempt(second, ready, "ready", exit_code, Some(2));
    }
    let lost = "Container main is no longer ready, because its readiness probe failed 2 times in a row";
    let expected = [
        (reason::CONTAINER_NOT_READY, lost.to_owned()),
        (reason::CONTAINER_READY, "Container main is ready again".to_owned()),
    ];
    assert_eq!(node.events(8), expected);
}
