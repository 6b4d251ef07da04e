//! Sends the calls of a capture in their order and with their distances, and measures them.

use std::collections::HashMap;
use std::panic;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::Status;

use super::file::{CaptureFile, RecordedCall};
use super::report::{ReplayReport, ReplayedCall, ShortenedDistances, SkipReason};
use super::targets::Targets;
use crate::capture::CaptureRuntime;
use crate::containerd::{TaskEvents, TimestampedEvent};
use crate::cri::v1::{ExecSyncResponse, VersionRequest};
use crate::cri::{Code, FieldClient, FieldMessage, Method, MethodName, lazy_channel, runtime_client};
use crate::deadline;
use crate::execsync::{ExecMeter, PendingExec, Phases};
use crate::history::json::{self, milliseconds};
use crate::inventory::RuntimeInfo;
use crate::relay::CallOutcome;
use crate::socket::SocketPath;
use crate::tap::is_read_only;

/// Maximum number of calls in flight. Later calls wait, and are counted as late.
const MAX_IN_FLIGHT: usize = 1000;

/// Longest recorded distance between two calls that is kept. Longer ones are shortened.
const MAX_DISTANCE: Duration = Duration::from_secs(60);

/// Time to wait for events after the last call.
const LATE_EVENTS: Duration = Duration::from_millis(1500);

/// Parameters of a replay.
#[derive(Clone, Debug)]
pub struct ReplaySpec {
    /// Socket of the runtime, or of a probeshim in front of it.
    pub upstream: SocketPath,
    /// Factor by which the distances of calls are shortened.
    pub speed: f64,
    /// Whether the commands of hooks are executed again.
    pub hooks: bool,
}

/// Error of a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The runtime does not answer.
    #[error("the runtime at {socket} does not answer: {}", status.message())]
    Runtime {
        /// Socket of the runtime.
        socket: SocketPath,
        /// The status.
        status: Status,
    },
}

/// A call to be sent.
struct PlannedCall {
    /// Index of the recorded call.
    index: usize,
    method: Method,
    request: FieldMessage,
    /// Time from the start of the replay.
    due: Duration,
}

/// Times at which calls are sent.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Recorded start of the last call.
    last: Option<SystemTime>,
    /// Time of the last call, from the start of the replay.
    due: Duration,
    pub(super) shortened: ShortenedDistances,
}

/// Result of a call that was sent.
struct SentCall {
    index: usize,
    outcome: CallOutcome,
    message: Option<String>,
    exit_code: Option<i32>,
    duration: Duration,
    exec: Option<(String, PendingExec)>,
}

/// Measures the phases of the ExecSyncs in all containers.
struct PhaseMeters {
    events: Option<TaskEvents>,
    meters: HashMap<String, ExecMeter>,
    /// Indices of recorded calls, by container and id in its meter.
    indices: HashMap<(String, u64), usize>,
    measured: HashMap<usize, Phases>,
}

/// Sends the calls of a recording that read the state, and its ExecSyncs.
pub async fn run_replay(recording: &CaptureFile, spec: &ReplaySpec) -> Result<ReplayReport, ReplayError> {
    let failed = |status| ReplayError::Runtime { socket: spec.upstream.clone(), status };
    let mut client = runtime_client(&spec.upstream);
    let version = client.version(VersionRequest { version: "v1".to_owned() }).await.map_err(failed)?;
    let runtime = RuntimeInfo::from(version.into_inner());
    let mut phases = PhaseMeters::new(
        runtime.publishes_task_events().then(|| TaskEvents::new(lazy_channel(&spec.upstream))),
    );
    // The subscription starts while the containers are listed.
    let targets = phases.observe(Targets::list(&mut client, &recording.calls)).await.map_err(failed)?;
    let runtime = CaptureRuntime { name: runtime.name, version: runtime.version };
    let mut report = ReplayReport::new(recording, &spec.upstream, runtime);
    let (mut planned, mut schedule) = (Vec::new(), Schedule::default());
    for (index, call) in recording.calls.iter().enumerate() {
        match plan(call, &targets, spec.hooks) {
            Ok((method, request)) => {
                let due = schedule.next(call.start, spec.speed);
                planned.push(PlannedCall { index, method, request, due });
            }
            Err(reason) => report.skip(reason, &targets),
        }
    }
    report.shortened = schedule.shortened;
    let (sent, late) = send_all(recording, planned, &spec.upstream, &mut phases).await;
    phases.wait_for_late_events().await;
    report.late(late);
    let mut measured = phases.measured;
    let replayed = sent.into_iter().map(|call| ReplayedCall {
        recorded: &recording.calls[call.index],
        outcome: call.outcome,
        message: call.message,
        exit_code: call.exit_code,
        duration: call.duration,
        phases: measured.remove(&call.index).map(|phases| json::Phases::from(&phases)),
    });
    report.add(replayed.collect());
    Ok(report)
}

/// Returns the request to send for a recorded call, or the reason why none is sent.
pub(super) fn plan(
    call: &RecordedCall,
    targets: &Targets,
    hooks: bool,
) -> Result<(Method, FieldMessage), SkipReason> {
    let MethodName::Known(method) = call.method else { return Err(SkipReason::NotReadOnly) };
    if !is_read_only(&call.method) && method.name() != "ExecSync" {
        return Err(SkipReason::NotReadOnly);
    }
    if call.may_be_hook() && !hooks {
        return Err(SkipReason::Hook);
    }
    if call.has_no_command {
        return Err(SkipReason::CommandRedacted);
    }
    let mut request = call.request.clone().ok_or(SkipReason::NoRequest)?;
    targets.resolve(&call.method, &mut request).map_err(SkipReason::NotFound)?;
    Ok((method, request))
}

impl Schedule {
    /// Returns the time, from the start of the replay, at which the next call is sent. It was
    /// recorded at `start`.
    pub(super) fn next(&mut self, start: SystemTime, speed: f64) -> Duration {
        let recorded = self.last.and_then(|last| start.duration_since(last).ok()).unwrap_or_default();
        self.last = Some(start);
        let excess = recorded.saturating_sub(MAX_DISTANCE);
        if !excess.is_zero() {
            self.shortened.count += 1;
            self.shortened.total_ms += milliseconds(excess);
        }
        self.due += recorded.min(MAX_DISTANCE).div_f64(speed);
        self.due
    }
}

/// Sends all calls, each at its time. Returns their results, in the order of their ends, and the
/// longest delay of a call.
async fn send_all(
    recording: &CaptureFile,
    planned: Vec<PlannedCall>,
    upstream: &SocketPath,
    phases: &mut PhaseMeters,
) -> (Vec<SentCall>, Duration) {
    let client = FieldClient::new(upstream);
    let (began, mut late) = (Instant::now(), Duration::ZERO);
    let mut planned = planned.into_iter().peekable();
    let (mut running, mut ended) = (JoinSet::new(), Vec::new());
    while planned.peek().is_some() || !running.is_empty() {
        let next = planned.peek().filter(|_| running.len() < MAX_IN_FLIGHT).map(|call| began + call.due);
        tokio::select! {
            () = deadline::reached(next) => {
                let Some(call) = planned.next() else { continue };
                late = late.max(began.elapsed().saturating_sub(call.due));
                let exec = phases.start(&call);
                running.spawn(send(client.clone(), call.index, call.method, call.request, limit(&recording.calls[call.index]), exec));
            }
            Some(call) = running.join_next() => {
                let mut call = call.unwrap_or_else(|panicked| panic::resume_unwind(panicked.into_panic()));
                phases.finish(&mut call);
                ended.push(call);
            }
            event = phases.next_event() => phases.on_event(event),
        }
    }
    (ended, late)
}

/// Limits of a call: the time that the runtime is given, and the time after which the call is
/// cancelled. A call that its client cancelled without a deadline is cancelled after the same time.
pub(super) fn limit(call: &RecordedCall) -> (Option<Duration>, Option<Duration>) {
    let is_cancelled = matches!(call.outcome, CallOutcome::ClientReset(_) | CallOutcome::ClientGone);
    (call.timeout, call.timeout.or(is_cancelled.then_some(call.duration)))
}

async fn send(
    client: FieldClient,
    index: usize,
    method: Method,
    request: FieldMessage,
    (sent_timeout, limit): (Option<Duration>, Option<Duration>),
    exec: Option<(String, PendingExec)>,
) -> SentCall {
    let began = Instant::now();
    let call = async {
        if method.name() == "ExecSync" {
            let response = client.call::<ExecSyncResponse>(method, request, sent_timeout).await?;
            return Ok(Some(response.exit_code));
        }
        client.call::<()>(method, request, sent_timeout).await.map(|()| None)
    };
    let result: Result<Result<Option<i32>, Status>, _> = match limit {
        Some(limit) => timeout(limit, call).await,
        None => Ok(call.await),
    };
    let duration = began.elapsed();
    let is_over = limit.is_some_and(|limit| duration >= limit);
    let reset = CallOutcome::ClientReset(h2::Reason::CANCEL);
    let (outcome, message, exit_code) = match result {
        Err(_) => (reset, None, None),
        // The client's own deadline, which the channel observes too.
        Ok(Err(status)) if is_over && status.code() == tonic::Code::Cancelled => (reset, None, None),
        Ok(Err(status)) => {
            let code = CallOutcome::Completed(Some(Code::from(status.code())));
            (code, Some(status.message().to_owned()), None)
        }
        Ok(Ok(exit_code)) => (CallOutcome::Completed(Some(Code::OK)), None, exit_code),
    };
    SentCall { index, outcome, message, exit_code, duration, exec }
}

impl PhaseMeters {
    fn new(events: Option<TaskEvents>) -> Self {
        Self { events, meters: HashMap::new(), indices: HashMap::new(), measured: HashMap::new() }
    }

    /// Waits for a future while events are received.
    async fn observe<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                result = &mut future => return result,
                event = self.next_event() => self.on_event(event),
            }
        }
    }

    /// Returns the next event; never completes without events. An error ends them.
    async fn next_event(&mut self) -> Option<TimestampedEvent> {
        match &mut self.events {
            Some(events) => events.next().await.and_then(Result::ok),
            None => std::future::pending().await,
        }
    }

    fn on_event(&mut self, event: Option<TimestampedEvent>) {
        let Some(event) = event else {
            self.events = None;
            return;
        };
        for meter in self.meters.values_mut() {
            meter.on_task_event(&event);
        }
        self.collect(false);
    }

    /// Called before a call is sent.
    fn start(&mut self, call: &PlannedCall) -> Option<(String, PendingExec)> {
        if call.method.name() != "ExecSync" {
            return None;
        }
        let container = call.request.text(&["container_id"])?;
        let command = call.request.texts("cmd").unwrap_or_default();
        let has_events = self.events.is_some();
        let meter =
            self.meters.entry(container.clone()).or_insert_with(|| ExecMeter::new(&container, has_events));
        let pending = meter.start(&command, call.request.number("timeout").unwrap_or(0));
        self.indices.insert((container.clone(), pending.id()), call.index);
        Some((container, pending))
    }

    fn finish(&mut self, call: &mut SentCall) {
        let Some((container, pending)) = call.exec.take() else { return };
        let code = match call.outcome {
            CallOutcome::Completed(Some(code)) => code,
            _ => Code::CANCELLED,
        };
        if let Some(meter) = self.meters.get_mut(&container) {
            meter.finish(pending, call.duration, code, call.exit_code);
        }
        self.collect(false);
    }

    /// Takes the phases that are known. With `is_final`, no more events are awaited.
    fn collect(&mut self, is_final: bool) {
        for (container, meter) in &mut self.meters {
            // Only calls need the timings of exec instances.
            drop(meter.take_timings());
            for (id, phases) in meter.take_measured(is_final) {
                if let Some(index) = self.indices.remove(&(container.clone(), id)) {
                    self.measured.insert(index, phases);
                }
            }
        }
    }

    /// Waits a moment for the late events of calls that have ended.
    async fn wait_for_late_events(&mut self) {
        let until = Instant::now() + LATE_EVENTS;
        while !self.indices.is_empty()
            && self.events.is_some()
            && let Ok(event) = timeout_at(until, self.next_event()).await
        {
            self.on_event(event);
        }
        self.collect(true);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::UNIX_EPOCH;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_distance_of_more_than_a_minute_is_shortened_and_counted() {
        let mut schedule = Schedule::default();
        let year = 365 * 24 * 60 * 60;
        let due: Vec<u64> = [100, 130, 190, 190 + year, 150, 151, 300]
            .into_iter()
            .map(|start| schedule.next(UNIX_EPOCH + Duration::from_secs(start), 0.5).as_secs())
            .collect();
        assert_eq!(due, [0, 60, 180, 300, 300, 302, 422]);
        assert_eq!(schedule.shortened.count, 2);
        let shortened = Duration::from_secs_f64(schedule.shortened.total_ms / 1e3);
        assert_eq!(shortened, Duration::from_secs(year - 60 + 89));
    }

    #[test]
    fn the_command_of_a_hook_is_executed_only_on_request() {
        let call = |id: u64, probe: Value| {
            json!({
                "id": id, "start": "2026-01-31T13:09:32Z", "method": "ExecSync", "durationMs": 2.5, "code": "OK",
                "requestBytes": 1, "responseBytes": 1, "peer": null, "pod": null, "container": null,
                "timeoutMs": 1000, "response": null, "request": {"message": {"cmd": ["rm", "-r", "/data"]}},
                "exec": {
                    "command": ["rm"], "commandTruncated": false, "timeoutSeconds": 1, "exitCode": 0,
                    "stdoutBytes": 0, "stderrBytes": 0, "probe": probe, "marginMs": null, "phases": null,
                    "assessment": null, "slowBecause": null, "startedMs": null, "exitedMs": null,
                    "exitStatus": null, "killed": null, "evidence": null,
                },
            })
            .to_string()
        };
        let purpose = |kind: &str, candidates: &[&str]| json!({"type": kind, "candidates": candidates, "source": "manifest", "confidence": 1.0, "periodMs": null});
        let header = json!({
            "probeshimCapture": 1, "version": "0", "started": "2026-01-31T13:09:32Z", "forMs": 1000,
            "runtime": null, "redactCommands": false,
        });
        let lines = [
            header.to_string(),
            call(1, purpose("preStop", &[])),
            call(2, purpose("postStart", &[])),
            call(3, purpose("ambiguous", &["liveness", "preStop"])),
            call(4, purpose("liveness", &[])),
            call(5, purpose("ambiguous", &["liveness", "readiness"])),
            call(6, Value::Null),
        ];
        let recording = CaptureFile::parse(lines.join("\n").as_bytes(), Path::new("file")).unwrap();
        let targets = Targets::new(Vec::new(), Vec::new(), &recording.calls);
        let skipped = |hooks| -> Vec<u64> {
            let is_skipped = |call: &&RecordedCall| plan(call, &targets, hooks).is_err();
            recording.calls.iter().filter(is_skipped).map(|call| call.id).collect()
        };
        assert_eq!(skipped(false), [1, 2, 3], "a call that may be a hook is not sent");
        assert_eq!(skipped(true), [0; 0]);
        assert_eq!(plan(&recording.calls[0], &targets, false).unwrap_err(), SkipReason::Hook);
    }
}
