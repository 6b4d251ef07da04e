//! Phases of ExecSyncs that probeshim itself makes: the tracker without a relay.

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
    next_id: u64,
    /// All exec instances in the container, by exec id.
    instances: HashMap<Box<str>, ExecInstance>,
}

/// A call in flight.
#[derive(Debug)]
pub struct PendingExec {
    info: Arc<CallInfo>,
    exec: ExecCall,
}

/// The durations of one exec instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecTiming {
    /// Time from `TaskExecAdded` to `TaskExecStarted`.
    pub start: Duration,
    /// Time from `TaskExecStarted` to `TaskExit`.
    pub run: Duration,
}

impl PendingExec {
    /// Returns the id of the call, which no other call of its meter has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.info.id
    }
}

impl ExecMeter {
    /// Creates a meter for the container with this full id. `has_exec_events` is whether the
    /// runtime reports exec instances.
    #[must_use]
    pub fn new(container: &str, has_exec_events: bool) -> Self {
        let mut tracker = Tracker::new(SlownessConfig::default());
        tracker.events_available(has_exec_events, Instant::now());
        Self { container: container.into(), tracker, next_id: 1, instances: HashMap::new() }
    }

    /// Called before a call is sent.
    pub fn start(&mut self, command: &[String], timeout_seconds: i64) -> PendingExec {
        let now = Instant::now();
        let info = Arc::new(CallInfo {
            id: self.next_id,
            peer: None,
            method: MethodName::of_path("/runtime.v1.RuntimeService/ExecSync"),
            start: SystemTime::now(),
            since: now,
            trace: None,
            timeout: None,
        });
        self.next_id += 1;
        let exec = ExecCall { command: command.to_vec(), timeout_seconds, ..ExecCall::default() };
        let request = ExecRequest {
            info: Arc::downgrade(&info),
            id: info.id,
            times: SendTimes { received: now, sent: now },
            container: None,
            exec: Box::new(exec.clone()),
        };
        self.tracker.on_request(&self.container, request, CallContext::default());
        PendingExec { info, exec }
    }

    /// Called when a call has ended, with its duration, its gRPC code and, if it succeeded, its
    /// exit code.
    pub fn finish(&mut self, call: PendingExec, duration: Duration, code: Code, exit_code: Option<i32>) {
        let PendingExec { info, mut exec } = call;
        exec.result = exit_code.map(|exit_code| ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
        let decoded = DecodedCall {
            received: Some(info.since),
            times: Some(SendTimes { received: info.since, sent: info.since }),
            call: Call {
                duration,
                ending: CallOutcome::Completed(Some(code)),
                exec: Some(Box::new(exec)),
                ..Call::new(&info)
            },
            observations: Observations { observed_since: info.since, items: Vec::new() },
            info,
            request: None,
            bodies: None,
        };
        self.tracker.on_end(&self.container, Box::new(decoded), CallContext::default(), Instant::now());
    }

    /// Applies an event of containerd about an exec instance.
    pub fn on_task_event(&mut self, timestamped: &TimestampedEvent) {
        if timestamped.event.container() != &*self.container {
            return;
        }
        let now = ClockReading::new(Instant::now());
        if let Some(exec) = timestamped.event.exec() {
            let instance = self.instances.entry(exec.into()).or_insert_with(|| ExecInstance::new(exec));
            instance.apply(&timestamped.event, EventTime::new(timestamped.at, now));
        }
        self.tracker.on_task_event(timestamped, now);
    }

    /// Returns the phases of calls that were recorded since the last call. With `is_final`, calls
    /// that have ended are recorded immediately, without waiting for more events.
    pub fn take_phases(&mut self, is_final: bool) -> Vec<Phases> {
        self.take_measured(is_final).into_iter().map(|(_, phases)| phases).collect()
    }

    /// Returns the phases as [`Self::take_phases`] does, each with the id of its call.
    pub fn take_measured(&mut self, is_final: bool) -> Vec<(u64, Phases)> {
        if is_final {
            self.tracker.flush(Instant::now());
        } else {
            self.tracker.tick(Instant::now());
        }
        self.tracker.sample_requests.clear();
        let records = self.tracker.records.drain(..);
        // A record that later events amended was returned already.
        let final_records = records.filter(|record| !record.is_amended);
        final_records.filter_map(|record| Some((record.call.id, record.analysis?.phases.clone()))).collect()
    }

    /// Returns the timings of the exec instances that have exited since the last call.
    pub fn take_timings(&mut self) -> Vec<ExecTiming> {
        let between =
            |from: Option<EventTime>, to: Option<EventTime>| from.zip(to).map(|(from, to)| to.after(from.at));
        let exited = self.instances.extract_if(|_, instance| instance.exited.is_some());
        exited
            .filter_map(|(_, instance)| {
                let start = between(instance.added, instance.started)?;
                Some(ExecTiming { start, run: between(instance.started, instance.exited)? })
            })
            .collect()
    }
}
