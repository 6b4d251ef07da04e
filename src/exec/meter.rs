//! ExecSyncs that we make ourselves, and where their time goes: the tracker without a relay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::exec_instance::{ClockReading, EventTime, ExecInstance};
use super::phases::Phases;
use super::slowness::SlownessConfig;
use super::tracker::{CallContext, Tracker};
use crate::containerd::TimestampedEvent;
use crate::cri::{Code, MethodName};
use crate::relay::{CallInfo, CallOutcome};
use crate::tap::{Call, DecodedCall, ExecCall, ExecRequest, ExecResult, Observations, SendTimes};

/// Measures `ExecSync`s in one container.
#[derive(Debug)]
pub struct ExecMeter {
    container: Arc<str>,
    tracker: Tracker,
    next: u64,
    /// Everything that was executed, whoever asked for it.
    executions: HashMap<Box<str>, ExecInstance>,
}

/// A call that goes on.
#[derive(Debug)]
pub struct PendingExec {
    head: Arc<CallInfo>,
    exec: ExecCall,
}

/// How long something that was executed took to start, and to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From its announcement until it ran.
    pub start: Duration,
    /// Until it exited.
    pub run: Duration,
}

impl ExecMeter {
    /// A meter for the container of this whole id. `tells_execs`: whether events about it will come.
    #[must_use]
    pub fn new(container: &str, tells_execs: bool) -> Self {
        let mut tracker = Tracker::new(SlownessConfig::default());
        tracker.events_available(tells_execs, Instant::now());
        Self { container: container.into(), tracker, next: 1, executions: HashMap::new() }
    }

    /// A call is about to be made.
    pub fn begin(&mut self, command: &[String], timeout_seconds: i64) -> PendingExec {
        let now = Instant::now();
        let head = Arc::new(CallInfo {
            id: self.next,
            peer: None,
            method: MethodName::of_path("/runtime.v1.RuntimeService/ExecSync"),
            start: SystemTime::now(),
            since: now,
            trace: None,
        });
        self.next += 1;
        let exec = ExecCall { command: command.to_vec(), truncated: false, timeout_seconds, result: None };
        let request = ExecRequest {
            head: Arc::downgrade(&head),
            id: head.id,
            sent: SendTimes { whole: now, sent: now },
            container: None,
            exec: Box::new(exec.clone()),
        };
        self.tracker.on_request(&self.container, request, CallContext::default());
        PendingExec { head, exec }
    }

    /// A call has ended after so long, with this code, and with this exit code if it went well.
    pub fn end(&mut self, call: PendingExec, duration: Duration, code: Code, exit_code: Option<i32>) {
        let PendingExec { head, mut exec } = call;
        exec.result = exit_code.map(|exit_code| ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
        let ended = DecodedCall {
            sent: Some(SendTimes { whole: head.since, sent: head.since }),
            call: Call {
                duration,
                ending: CallOutcome::Completed(Some(code)),
                exec: Some(Box::new(exec)),
                ..Call::new(&head)
            },
            observations: Observations { observed_since: head.since, items: Vec::new() },
            head,
            request: None,
        };
        self.tracker.on_end(&self.container, Box::new(ended), CallContext::default(), Instant::now());
    }

    /// Something has become of what is executed.
    pub fn task(&mut self, stamped: &TimestampedEvent) {
        if stamped.event.container() != &*self.container {
            return;
        }
        let now = ClockReading::new(Instant::now());
        if let Some(exec) = stamped.event.exec() {
            let execution = self.executions.entry(exec.into()).or_insert_with(|| ExecInstance::new(exec));
            execution.apply(&stamped.event, EventTime::new(stamped.at, now));
        }
        self.tracker.on_task_event(stamped, now);
    }

    /// Where the time of each call went that is known since it was last asked. Calls that have ended are all known once `is_over`: what is
    /// missing now does not come any more.
    pub fn phases(&mut self, is_over: bool) -> Vec<Phases> {
        if is_over {
            self.tracker.flush(Instant::now());
        } else {
            self.tracker.tick(Instant::now());
        }
        self.tracker.sample_requests.clear();
        let records = self.tracker.records.drain(..);
        // What has been heard of since a call was counted does not count again.
        let final_records = records.filter(|record| !record.is_amended);
        final_records.filter_map(|record| Some(record.insight?.phases.clone())).collect()
    }

    /// What was executed in the container since it was last asked, and is over.
    pub fn executions(&mut self) -> Vec<Timing> {
        let between =
            |from: Option<EventTime>, to: Option<EventTime>| from.zip(to).map(|(from, to)| to.after(from.at));
        let over = self.executions.extract_if(|_, execution| execution.exited.is_some());
        over.filter_map(|(_, execution)| {
            let start = between(execution.added, execution.started)?;
            Some(Timing { start, run: between(execution.started, execution.exited)? })
        })
        .collect()
    }
}
