//! Converts JSON into call records.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::call::{Failure, Fault, Kill};
use super::insight::{Cpu, Evidence, Phases, Pids, Pressures, Probe};
use super::{Call, Exec};
use crate::execsync::{
    self, Assessment, CallRecord, CommandOutcome, ExecAnalysis, MissingEvents, PhaseDurations, ProbeMatch,
    Slow, TimeoutMargin,
};
use crate::history::filter_values::MethodArg;
use crate::manifest::{ExecPurpose, Source};
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallMarks, CallOutcome, DIRECT, DirectMark, FaultMark, Peer};
use crate::tap;

/// The JSON is not a call record, or not one of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a call record")]
pub struct RecordError;

impl TryFrom<Call> for CallRecord {
    type Error = RecordError;

    fn try_from(call: Call) -> Result<Self, RecordError> {
        let duration = duration(call.duration_ms)?;
        let insight = call.exec.as_ref().map(insight).transpose()?.flatten();
        let read = tap::Call {
            id: call.id,
            start: call.start.parse::<Timestamp>().map(SystemTime::from).map_err(|_| RecordError)?,
            duration,
            method: MethodArg::method_of(&call.method),
            ending: CallOutcome::named(&call.code).ok_or(RecordError)?,
            message: call.message.map(String::into_boxed_str),
            request_bytes: call.request_bytes,
            response_bytes: call.response_bytes,
            peer: call
                .peer
                .map(|peer| Arc::new(Peer { uid: peer.uid, pid: peer.pid, program: peer.program })),
            pod: call.pod.map(|pod| {
                let super::Pod { id, namespace, name, uid } = pod;
                Arc::new(PodRef { id, namespace, name, uid })
            }),
            container: call.container.map(|container| {
                let super::Container { id, name, attempt } = container;
                Arc::new(ContainerRef { id, name, attempt })
            }),
            image: call.image.map(String::into_boxed_str),
            exec: call.exec.map(|exec| Box::new(exec.into())),
            kill: call.kill.map(|kill| kill.try_into().map(Box::new)).transpose()?,
            marks: marks(call.faults, call.policy, call.forwarded_because),
        };
        Ok(Self { analysis: insight.map(Arc::new), ..Self::unanalyzed(read, None, None) })
    }
}

/// Returns the marks of a call that probeshim affected.
fn marks(
    faults: Vec<Fault>,
    mut policies: Vec<String>,
    forwarded_because: Option<String>,
) -> Option<Box<CallMarks>> {
    let is_direct = policies.pop_if(|policy| policy == DIRECT).is_some();
    let executed = is_direct.then_some(DirectMark::Executed(None));
    let mark = |fault: Fault| FaultMark { name: fault.name.into(), action: fault.action.into() };
    let marks = CallMarks {
        faults: faults.into_iter().map(mark).collect(),
        policies: policies.into_iter().map(Arc::from).collect(),
        direct: executed.or(forwarded_because.map(|reason| DirectMark::Forwarded(reason.into()))),
    };
    (!marks.is_empty()).then(|| Box::new(marks))
}

impl TryFrom<Kill> for tap::KillRecord {
    type Error = RecordError;

    fn try_from(kill: Kill) -> Result<Self, RecordError> {
        let Kill { probe, message, threshold, grace_period_seconds: grace_period, failures } = kill;
        let failure = |failure: Failure| {
            let at = failure.time.parse::<Timestamp>().map_err(|_| RecordError)?;
            Ok(tap::ProbeFailure { at: at.into(), message: failure.message })
        };
        let failures = failures.into_iter().map(failure).collect::<Result<_, _>>()?;
        Ok(Self { probe, message, threshold, grace_period, failures })
    }
}

impl From<Exec> for tap::ExecCall {
    fn from(exec: Exec) -> Self {
        let result = exec.exit_code.map(|exit_code| tap::ExecResult {
            exit_code,
            stdout_bytes: exec.stdout_bytes.unwrap_or(0),
            stderr_bytes: exec.stderr_bytes.unwrap_or(0),
        });
        let Exec { command, command_truncated: truncated, timeout_seconds, output, .. } = exec;
        let output = output.map(String::into_boxed_str);
        Self { command, truncated, timeout_seconds, result, output, is_discarded: false }
    }
}

fn insight(exec: &Exec) -> Result<Option<ExecAnalysis>, RecordError> {
    let (Some(phases), Some(assessment)) = (&exec.phases, &exec.assessment) else { return Ok(None) };
    let slow = exec.slow_because.as_deref().and_then(Slow::named);
    let assessment = Assessment::named(assessment, slow).ok_or(RecordError)?;
    // Events describe the command if the call returned no exit code, even if they only show that
    // the command never started.
    let is_present = exec.started_ms.or(exec.exited_ms).is_some() || exec.exit_status.is_some();
    let has_command_outcome = is_present || (exec.exit_code.is_none() && phases.state == "complete");
    let command_outcome = CommandOutcome {
        started: exec.started_ms.map(duration).transpose()?,
        exited: exec.exited_ms.map(duration).transpose()?,
        status: exec.exit_status,
    };
    Ok(Some(ExecAnalysis {
        identity: exec.probe.as_ref().map(identity).transpose()?.unwrap_or_default(),
        phases: read_phases(phases)?,
        margin: exec.margin_ms.map(margin).transpose()?,
        command_outcome: has_command_outcome.then_some(command_outcome),
        container_exited: exec.container_exited,
        assessment,
        evidence: exec.evidence.as_ref().map(evidence).transpose()?.map(Arc::new),
    }))
}

fn identity(probe: &Probe) -> Result<ProbeMatch, RecordError> {
    let period = probe.period_ms.map(duration).transpose()?;
    if probe.source == "learned" {
        let period = period.ok_or(RecordError)?;
        return Ok(ProbeMatch::Inferred { period, confidence: probe.confidence });
    }
    let names =
        if probe.candidates.is_empty() { std::slice::from_ref(&probe.r#type) } else { &probe.candidates };
    let uses: Option<Vec<ExecPurpose>> = names.iter().map(|name| ExecPurpose::named(name)).collect();
    let source = Source::named(&probe.source).ok_or(RecordError)?;
    Ok(ProbeMatch::Matched { uses: uses.ok_or(RecordError)?, source, period })
}

fn read_phases(phases: &Phases) -> Result<execsync::Phases, RecordError> {
    let known = |time: Option<f64>| time.map(duration).transpose();
    let parts = PhaseDurations {
        queue: duration(phases.queue_ms)?,
        prepare: known(phases.prepare_ms)?,
        start: known(phases.start_ms)?,
        run: known(phases.run_ms)?,
        drain: known(phases.drain_ms)?,
        other: duration(phases.other_ms)?,
    };
    Ok(match phases.state.as_str() {
        "complete" => execsync::Phases::Complete(parts),
        "unsupported" => execsync::Phases::Unsupported(parts),
        "ambiguous" => {
            let candidates: Vec<Box<str>> =
                phases.candidates.iter().map(|exec| exec.as_str().into()).collect();
            let count = phases.candidate_count.unwrap_or(candidates.len());
            execsync::Phases::Ambiguous { parts, candidates, count }
        }
        "missing" => {
            let what = phases.missing.as_deref().and_then(MissingEvents::named).ok_or(RecordError)?;
            execsync::Phases::Missing { parts, what }
        }
        _ => return Err(RecordError),
    })
}

fn evidence(evidence: &Evidence) -> Result<execsync::Evidence, RecordError> {
    let pressures = |pressures: &Option<Pressures>| {
        let read = |pressures: &Pressures| {
            let Pressures { cpu_ms, io_ms, memory_ms } = *pressures;
            Ok(execsync::PressureStall {
                cpu: duration(cpu_ms)?,
                io: duration(io_ms)?,
                memory: duration(memory_ms)?,
            })
        };
        pressures.as_ref().map(read).transpose()
    };
    let cpu = |cpu: &Cpu| {
        Ok(execsync::CpuUsage {
            quota: cpu.quota,
            used: cpu.used_ms.map(duration).transpose()?,
            periods: cpu.periods,
            throttled_periods: cpu.throttled_periods,
            throttled: duration(cpu.throttled_ms)?,
        })
    };
    Ok(execsync::Evidence {
        window: duration(evidence.window_ms)?,
        in_flight: (evidence.in_flight_container, evidence.in_flight_node),
        cpu: evidence.cpu.as_ref().map(cpu).transpose()?,
        container_pressure: pressures(&evidence.container_pressure)?,
        node_pressure: pressures(&evidence.node_pressure)?,
        psi_window: duration(evidence.node_window_ms)?,
        pids: evidence.pids.as_ref().map(|Pids { current, max, scope }| execsync::Pids {
            current: *current,
            max: *max,
            scope: execsync::PidsScope::from_name(scope),
        }),
        is_frozen: evidence.frozen,
        oom_kills: evidence.oom_kills,
        load: evidence.load1.zip(evidence.processors),
    })
}

fn margin(milliseconds: f64) -> Result<TimeoutMargin, RecordError> {
    let margin = duration(milliseconds.abs())?;
    Ok(if milliseconds < 0.0 { TimeoutMargin::Over(margin) } else { TimeoutMargin::Under(margin) })
}

/// Converts milliseconds into the duration from which they were made.
fn duration(milliseconds: f64) -> Result<Duration, RecordError> {
    let seconds = Duration::try_from_secs_f64(milliseconds / 1e3).map_err(|_| RecordError)?;
    // Rounds to the microsecond, to remove the error of the division.
    let micros = u64::try_from((seconds + Duration::from_nanos(500)).as_micros()).map_err(|_| RecordError)?;
    Ok(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_records_survive_a_round_trip_through_json() {
        for text in include_str!("samples.jsonl").lines() {
            let call: Call = serde_json::from_str(text).unwrap();
            let record = CallRecord::try_from(call.clone()).unwrap();
            assert_eq!(Call::from(&record), call, "{text}");
        }
    }

    #[test]
    fn json_with_invalid_values_is_not_a_call_record() {
        let text = include_str!("samples.jsonl").lines().next().unwrap();
        let call: Call = serde_json::from_str(text).unwrap();
        for wrong in [
            Call { code: "FINE".into(), ..call.clone() },
            Call { start: "yesterday".into(), ..call.clone() },
            Call { duration_ms: -1.0, ..call },
        ] {
            assert_eq!(CallRecord::try_from(wrong.clone()).unwrap_err(), RecordError, "{wrong:?}");
        }
    }
}
