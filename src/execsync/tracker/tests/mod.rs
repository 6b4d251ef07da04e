//! Tests of a tracker with one container.

mod missed;
mod recorded;
mod stuck;

use std::time::SystemTime;

use super::*;
use crate::cri::MethodName;
use crate::execsync::phases::Phases;
use crate::tap::{ExecResult, Observations};

const MS: Duration = Duration::from_millis(1);
const ONE: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str = "2222222222222222222222222222222222222222222222222222222222222222";

/// A tracker with one container, and a clock that the test sets.
struct Scenario {
    tracker: Tracker,
    start: SystemTime,
    since: Instant,
    container: Arc<str>,
    infos: HashMap<u64, Arc<CallInfo>>,
    /// The context of calls, as it is known when they end.
    place: CallContext,
}

impl Scenario {
    fn new() -> Self {
        let mut tracker = Tracker::new(SlownessConfig::default());
        let since = Instant::now();
        tracker.events_available(true, since);
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        Self {
            tracker,
            start,
            since,
            container: "c0ffee".into(),
            infos: HashMap::new(),
            place: CallContext::default(),
        }
    }

    fn at(&self, millis: u32) -> Instant {
        self.since + MS * millis
    }

    fn exec(timeout: i64, exit_code: Option<i32>) -> ExecCall {
        let result = exit_code.map(|exit_code| ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
        let command = vec!["true".to_owned()];
        ExecCall { command, timeout_seconds: timeout, result, ..ExecCall::default() }
    }

    /// Starts a call.
    fn request(&mut self, id: u64, at: u32, timeout: i64) {
        let info = Arc::new(CallInfo {
            id,
            peer: None,
            method: MethodName::of_path("/runtime.v1.RuntimeService/ExecSync"),
            start: self.start + MS * at,
            since: self.at(at),
            trace: None,
            timeout: None,
        });
        let times = SendTimes { received: self.at(at), sent: self.at(at + 1) };
        let request = ExecRequest {
            info: Arc::downgrade(&info),
            id,
            times,
            container: None,
            exec: Box::new(Self::exec(timeout, None)),
        };
        self.infos.insert(id, info);
        self.tracker.on_request(&self.container.clone(), request, CallContext::default());
    }

    /// Ends a call with an exit code, or at the runtime's timeout if there is none.
    fn ended(&mut self, id: u64, at: u32, timeout: i64, exit_code: Option<i32>) {
        let code = if exit_code.is_some() { Code::OK } else { Code::DEADLINE_EXCEEDED };
        self.ended_with(id, at, Self::exec(timeout, exit_code), CallOutcome::Completed(Some(code)));
    }

    fn ended_with(&mut self, id: u64, at: u32, exec: ExecCall, ending: CallOutcome) {
        let info = self.infos.remove(&id).unwrap();
        let duration = self.at(at) - info.since;
        let call = Call { duration, ending, exec: Some(Box::new(exec)), ..Call::new(&info) };
        let observations = Observations { observed_since: info.since, items: Vec::new() };
        let ended = DecodedCall {
            received: None,
            times: None,
            call,
            observations,
            info,
            request: None,
            bodies: None,
        };
        let now = self.at(at);
        self.tracker.on_end(&self.container.clone(), Box::new(ended), self.place.clone(), now);
    }

    fn event(&mut self, at: u32, event: TaskEvent) {
        self.event_heard(at, at, event);
    }

    fn event_heard(&mut self, at: u32, heard: u32, event: TaskEvent) {
        let stamped = TimestampedEvent { at: self.start + MS * at, event };
        let now = ClockReading { instant: self.at(heard), wall: self.start + MS * heard };
        self.tracker.on_task_event(&stamped, now);
    }

    fn added(&mut self, exec: &str, at: u32) {
        let (container, exec) = (self.container.to_string(), exec.to_owned());
        self.event(at, TaskEvent::ExecAdded { container, exec });
    }

    fn started(&mut self, exec: &str, at: u32, pid: u32) {
        let (container, exec) = (self.container.to_string(), exec.to_owned());
        self.event(at, TaskEvent::ExecStarted { container, exec, pid });
    }

    fn exited(&mut self, exec: &str, at: u32, pid: u32, status: u32) {
        let (container, exec) = (self.container.to_string(), exec.to_owned());
        self.event(at, TaskEvent::ExecExited { container, exec, pid, status });
    }

    fn out_of_memory(&mut self, at: u32, heard: u32) {
        let container = self.container.to_string();
        self.event_heard(at, heard, TaskEvent::OutOfMemory { container });
    }

    fn evidence(&mut self, id: u64, at: u32) {
        let now = self.at(at);
        self.tracker.on_evidence(id, Evidence::default(), now);
    }

    fn records(&mut self) -> Vec<(u64, Phases)> {
        let phases = |record: CallRecord| (record.call.id, record.analysis.unwrap().phases.clone());
        self.tracker.records.drain(..).map(phases).collect()
    }

    fn record(&mut self) -> CallRecord {
        assert_eq!(self.tracker.records.len(), 1, "{:?}", self.tracker.records);
        self.tracker.records.remove(0)
    }
}
