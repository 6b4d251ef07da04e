//! Interprets arbitrary bytes as events and calls of a container, for a fuzz target.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::analysis::CallRecord;
use super::evidence::{Evidence, SampleRequest};
use super::exec_instance::ClockReading;
use super::slowness::SlownessConfig;
use super::tracker::{CallContext, Tracker};
use super::watchdog::Watchdog;
use crate::containerd::TimestampedEvent;
use crate::cri::{Code, MethodName};
use crate::relay::{CallInfo, CallOutcome};
use crate::tap::{Call, DecodedCall, ExecCall, ExecRequest, ExecResult, Observations, SendTimes};

/// Id of the container of all calls.
pub(crate) const CONTAINER: &str = "c0ffee";

/// Begin of the steps on the clock of events, in seconds since 1970.
const BEGIN: u64 = 1_790_000_000;

/// Maximum number of calls in flight.
const MAX_CALLS: usize = 16;

/// Time at which all scenarios begin.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A step of a scenario.
#[derive(Clone, Debug)]
pub(crate) enum TrackerStep {
    /// An event of containerd arrives.
    Event(TimestampedEvent),
    /// The request of a call with this timeout in seconds is sent.
    Request(u8),
    /// The oldest call ends with this exit code; `None` for the timeout of the runtime.
    End(Option<i32>),
    /// This time passes.
    Wait(Duration),
    /// The events of the runtime are interrupted, or are available again.
    Coverage(bool),
    /// The container exits.
    ContainerExit,
}

/// The tracker of a container, with its clock.
struct Scenario {
    tracker: Tracker,
    watchdog: Watchdog,
    container: Arc<str>,
    now: Instant,
    calls: Vec<Arc<CallInfo>>,
    next_id: u64,
    ended: usize,
    records: Vec<CallRecord>,
}

/// Performs steps, and returns the records of all calls that have ended. Each is recorded once,
/// apart from amendments.
pub(crate) fn interpret_steps(steps: impl IntoIterator<Item = TrackerStep>) -> Vec<CallRecord> {
    let mut scenario = Scenario::new();
    for step in steps {
        scenario.perform(step);
        scenario.take_results();
    }
    scenario.tracker.flush(scenario.now);
    scenario.take_results();
    let recorded = scenario.records.iter().filter(|record| !record.is_amended).count();
    assert_eq!(recorded, scenario.ended, "each call is recorded once");
    scenario.records
}

impl Scenario {
    fn new() -> Self {
        let (mut tracker, now) = (Tracker::new(SlownessConfig::default()), *START);
        tracker.events_available(true, now);
        Self {
            tracker,
            watchdog: Watchdog::default(),
            container: CONTAINER.into(),
            now,
            calls: Vec::new(),
            next_id: 1,
            ended: 0,
            records: Vec::new(),
        }
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(BEGIN) + self.now.duration_since(*START)
    }

    fn perform(&mut self, step: TrackerStep) {
        let now = self.now;
        match step {
            TrackerStep::Event(event) => {
                self.tracker.on_task_event(&event, ClockReading { instant: now, wall: self.wall() });
            }
            TrackerStep::Request(timeout) if self.calls.len() < MAX_CALLS => self.request(timeout.into()),
            TrackerStep::End(exit_code) if !self.calls.is_empty() => self.end(exit_code),
            TrackerStep::Request(_) | TrackerStep::End(_) => {}
            TrackerStep::Wait(duration) => {
                self.now += duration;
                self.tracker.tick(self.now);
                self.watchdog.check(&self.tracker, self.now);
            }
            TrackerStep::Coverage(true) => self.tracker.events_available(true, now),
            TrackerStep::Coverage(false) => self.tracker.events_interrupted(now),
            TrackerStep::ContainerExit => {
                self.tracker.container_exited(CONTAINER, now);
                self.watchdog.container_gone(CONTAINER);
            }
        }
    }

    fn request(&mut self, timeout_seconds: i64) {
        let info = Arc::new(CallInfo {
            id: self.next_id,
            peer: None,
            method: MethodName::of_path("/runtime.v1.RuntimeService/ExecSync"),
            start: self.wall(),
            since: self.now,
            trace: None,
            timeout: None,
        });
        self.next_id += 1;
        let request = ExecRequest {
            info: Arc::downgrade(&info),
            id: info.id,
            times: SendTimes { received: self.now, sent: self.now },
            container: None,
            exec: Box::new(exec(timeout_seconds, None)),
        };
        self.calls.push(info);
        self.tracker.on_request(&self.container, request, CallContext::default());
    }

    fn end(&mut self, exit_code: Option<i32>) {
        let info = self.calls.remove(0);
        let code = if exit_code.is_some() { Code::OK } else { Code::DEADLINE_EXCEEDED };
        let call = Call {
            duration: self.now.duration_since(info.since),
            ending: CallOutcome::Completed(Some(code)),
            exec: Some(Box::new(exec(1, exit_code))),
            ..Call::new(&info)
        };
        let decoded = DecodedCall {
            received: Some(info.since),
            times: Some(SendTimes { received: info.since, sent: info.since }),
            call,
            observations: Observations { observed_since: info.since, items: Vec::new() },
            info,
            request: None,
            bodies: None,
        };
        self.ended += 1;
        self.tracker.on_end(&self.container, Box::new(decoded), CallContext::default(), self.now);
    }

    /// Takes the results, and answers the requests for samples.
    fn take_results(&mut self) {
        for request in std::mem::take(&mut self.tracker.sample_requests) {
            match request {
                SampleRequest::Evidence { call, .. } => {
                    self.tracker.on_evidence(call, Evidence::default(), self.now);
                }
                SampleRequest::Cmdline { container, exec, .. } => {
                    self.tracker.on_cmdline(&container, &exec, vec!["true".to_owned()]);
                }
                _ => {}
            }
        }
        for session in std::mem::take(&mut self.tracker.sessions) {
            self.watchdog.watch(session);
        }
        self.watchdog.sample_requests.clear();
        self.records.append(&mut self.tracker.records);
    }
}

fn exec(timeout_seconds: i64, exit_code: Option<i32>) -> ExecCall {
    let result = exit_code.map(|exit_code| ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
    ExecCall { command: vec!["true".to_owned()], timeout_seconds, result, ..ExecCall::default() }
}
