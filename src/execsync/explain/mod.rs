//! Explanation of calls in sentences. Each sentence contains the numbers on which it is based.

mod findings;

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::analysis::{CallRecord, CommandOutcome, ExecAnalysis, TimeoutMargin};
use super::identity::ProbeMatch;
use super::phases::{MissingEvents, PhaseDurations, Phases};
use super::slowness::{Assessment, Slow};
use crate::cri::Code;
use crate::relay::{CallOutcome, Peer};
use crate::tap::{Call, ExecCall, KillRecord, ProbeFailure};
use crate::terminal::format::{self, duration};

/// Exit code with which CRI-O reports a command that timed out.
const CRIO_TIMEOUT: i32 = -1;

/// Explains a call, one sentence per string.
#[must_use]
pub fn explain(record: &CallRecord) -> Vec<String> {
    let call = &*record.call;
    let mut sentences = vec![describe_call(call)];
    if let Some(kill) = call.kill.as_deref() {
        sentences.extend(self::kill(kill));
        sentences.push(format!("It took {}, and {}.", duration(call.duration), end(call.ending)));
        return sentences;
    }
    let (Some(exec), Some(insight)) = (call.exec.as_deref(), record.analysis.as_deref()) else {
        sentences.push(format!("It took {}, and {}.", duration(call.duration), end(call.ending)));
        return sentences;
    };
    sentences.push(describe_purpose(&insight.identity));
    sentences.push(describe_outcome(call, exec, insight));
    sentences.extend(insight.command_outcome.map(describe_command));
    sentences.push(describe_phases(&insight.phases, call.duration));
    sentences.extend(evidence(insight));
    sentences
}

fn describe_call(call: &Call) -> String {
    let by = call.peer.as_deref().map(peer).unwrap_or_default();
    let place = place(call);
    match call.exec.as_deref() {
        Some(exec) => {
            let more = if exec.truncated { " …" } else { "" };
            format!("Call {} executed {}{more}{place}{by}.", call.id, format::command(&exec.command))
        }
        None => format!("Call {} was {}{place}{by}.", call.id, call.method),
    }
}

/// Describes the cause of a kill.
fn kill(kill: &KillRecord) -> Vec<String> {
    let KillRecord { probe, message, threshold, grace_period, failures } = kill;
    let mut sentences = vec![
        match threshold {
            1 => format!("{message}: the {probe} probe failed, and its threshold is 1."),
            _ => format!("{message}: the {probe} probe failed {threshold} times in a row, its threshold."),
        },
        format!("It was given {grace_period}s for its end."),
    ];
    let at = |failure: &ProbeFailure| format!("{}: {}", time_of(failure.at), failure.message);
    if failures.len() == 1 {
        sentences.push(format!("The attempt that failed, {}", failures.iter().map(at).collect::<String>()));
    } else if !failures.is_empty() {
        sentences.push(format!("The last {} attempts that failed:", failures.len()));
        sentences.extend(failures.iter().map(at));
    }
    sentences
}

/// Formats a time in UTC, in whole seconds.
fn time_of(at: SystemTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| "at an unknown time".to_owned(), |at| format!("at {at:.0}"))
}

fn peer(peer: &Peer) -> String {
    let program = peer.program.as_deref().unwrap_or("a program that cannot be named");
    match peer.pid {
        Some(pid) => format!(", asked by {program} (pid {pid}, uid {})", peer.uid),
        None => format!(", asked by {program} (uid {})", peer.uid),
    }
}

fn place(call: &Call) -> String {
    let container = call.container.as_deref();
    let name = container.and_then(|container| container.name.as_deref().or(container.id.as_deref()));
    let pod = call.pod.as_deref();
    let pod = pod.and_then(|pod| match (&pod.namespace, &pod.name) {
        (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
        _ => pod.id.clone(),
    });
    match (name, pod) {
        (Some(name), Some(pod)) => format!(" in container {name} of pod {pod}"),
        (Some(name), None) => format!(" in container {name}"),
        (None, Some(pod)) => format!(" about pod {pod}"),
        (None, None) => String::new(),
    }
}

fn describe_purpose(identity: &ProbeMatch) -> String {
    match identity {
        ProbeMatch::Matched { uses, source, period } => {
            let names: Vec<&str> = uses.iter().map(|used| used.name()).collect();
            let source = source.name();
            match (&names[..], period) {
                ([name], Some(period)) => {
                    format!("It is the {name} probe, every {} (source: {source}).", duration(*period))
                }
                ([name], None) => format!("It is the {name} hook (source: {source})."),
                (names, _) => format!(
                    "It is one of {}, which have the same command and timeout (source: {source}).",
                    names.join(" and ")
                ),
            }
        }
        ProbeMatch::Inferred { period, confidence } => format!(
            "It comes every {}, as a probe does; no spec tells which (learned, confidence {confidence}).",
            duration(*period)
        ),
        ProbeMatch::Unknown => "No known probe or hook matches this command.".to_owned(),
    }
}

fn describe_outcome(call: &Call, exec: &ExecCall, insight: &ExecAnalysis) -> String {
    let took = duration(call.duration);
    let margin = match (exec.timeout(), insight.margin) {
        (Some(timeout), Some(TimeoutMargin::Under(margin))) => {
            format!(", {} within its timeout of {}", duration(margin), duration(timeout))
        }
        (Some(timeout), Some(TimeoutMargin::Over(margin))) => {
            format!(", {} after its timeout of {} was over", duration(margin), duration(timeout))
        }
        _ => " without a timeout".to_owned(),
    };
    match (call.ending, exec.result.map(|result| result.exit_code)) {
        (_, Some(CRIO_TIMEOUT)) => {
            format!("It took {took}{margin}; the exit code -1 is how CRI-O says that it timed out.")
        }
        (_, Some(code)) => format!("It took {took}{margin}, and the command exited with code {code}."),
        (CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)), None) => {
            format!("The runtime answered DEADLINE_EXCEEDED after {took}{margin}.")
        }
        (CallOutcome::ClientReset(_), None) => {
            format!("The caller gave up after {took}{margin}; the runtime had not answered.")
        }
        (ending, None) => format!("It took {took}{margin}, and {}.", end(ending)),
    }
}

/// Describes the end of a call that returned no exit code.
fn end(ending: CallOutcome) -> String {
    match ending {
        CallOutcome::Completed(Some(code)) => format!("the runtime answered {code}"),
        CallOutcome::Completed(None) => "the runtime's answer had no status".to_owned(),
        CallOutcome::ClientReset(_) => "the caller gave it up".to_owned(),
        CallOutcome::UpstreamReset(_) => "the runtime reset it".to_owned(),
        CallOutcome::Refused => "the runtime never took it".to_owned(),
        CallOutcome::ConnectionLost => "the connection to the runtime broke under it".to_owned(),
        CallOutcome::ClientGone => "the caller's connection ended under it".to_owned(),
    }
}

fn describe_command(command_outcome: CommandOutcome) -> String {
    let Some(started) = command_outcome.started.map(duration) else {
        return "The command was never heard to start.".to_owned();
    };
    match (command_outcome.exited.map(duration), command_outcome.status) {
        (Some(exited), Some(137)) => {
            format!("The command started after {started} and was killed after {exited} (SIGKILL).")
        }
        (Some(exited), Some(status @ 129..)) => {
            let signal = status - 128;
            format!(
                "The command started after {started} and ended after {exited} with status {status}: by signal {signal}, or with that exit code."
            )
        }
        (Some(exited), Some(status)) => {
            format!("The command started after {started} and exited after {exited}, with code {status}.")
        }
        _ => format!("The command started after {started}; that it ended has not been heard of."),
    }
}

/// Describes the division of a call's duration into phases.
fn describe_phases(phases: &Phases, total: Duration) -> String {
    let parts = phases.parts();
    match phases {
        Phases::Complete(_) => describe_slowest_phase(parts, total),
        Phases::Ambiguous { count: 1, .. } => {
            "One command was executed in the container at that time that may have been this call's or a stranger's: where its time went is not known."
                .to_owned()
        }
        Phases::Ambiguous { count, .. } => format!(
            "{count} commands were executed in the container at that time that may have been this call's, and nothing tells which was: \
             where its time went is not known.",
        ),
        Phases::Missing { what: MissingEvents::NotWatched, .. } => {
            "The runtime is not watched (--watch-runtime off): only the whole time is known.".to_owned()
        }
        Phases::Missing { what: MissingEvents::Everything, .. } => {
            "containerd published nothing about this call that was heard of: where its time went is not known.".to_owned()
        }
        Phases::Missing { what: MissingEvents::Interrupted, .. } => {
            "containerd's events were interrupted while it lasted: where its time went is not known.".to_owned()
        }
        Phases::Missing { what: MissingEvents::Started, .. } => format!(
            "That the command was started has not been heard of: {} of its time cannot be attributed.",
            duration(parts.other)
        ),
        Phases::Missing { what: MissingEvents::Exited, .. } => format!(
            "That the command exited has not been heard of: {} of its time cannot be attributed.",
            duration(parts.other)
        ),
        Phases::Unsupported(_) => {
            "The runtime does not tell of what it executes: only the whole time is known.".to_owned()
        }
    }
}

/// Describes the longest phase and its usual cause.
fn describe_slowest_phase(parts: &PhaseDurations, total: Duration) -> String {
    let known = parts.named().into_iter().filter_map(|(name, time)| Some((name, time?)));
    let (name, time) = known.max_by_key(|(_, time)| *time).unwrap_or(("other", total));
    let about = match name {
        "queue" => "the call was held here before it was sent to the runtime",
        "prepare" => {
            "the runtime prepared the execution; it reads the container's description and makes pipes, so a slow disk or a busy \
             runtime shows here"
        }
        "start" if parts.run.is_none() => "the OCI runtime tried to start the command, and could not",
        "start" => "the OCI runtime joined the container and started the command",
        "run" => "the command itself ran",
        "drain" => {
            "the command had exited, and the runtime waited for the end of its output: something that it started keeps \
             stdout or stderr open, or cleaning up was slow"
        }
        _ => "nothing tells what it was spent on",
    };
    format!("Most of its time, {} ({}), is {name}: {about}.", duration(time), percent(time, total))
}

fn evidence(insight: &ExecAnalysis) -> Vec<String> {
    let why = match insight.assessment {
        Assessment::Fine => {
            return vec!["It was quick and went well, so nothing else was measured.".to_owned()];
        }
        Assessment::Failed => "it failed",
        Assessment::Slow(Slow::HalfOfTimeout) => "it took more than half of its timeout",
        Assessment::Slow(Slow::Threshold) => "it took longer than what is set as slow",
        Assessment::Slow(Slow::OverTripleMedian) => {
            "it took more than three times as long as such a call usually does"
        }
    };
    let Some(evidence) = insight.evidence.as_deref() else {
        return vec![format!("Because {why}, evidence was asked for, but none could be measured.")];
    };
    let found = findings::notable(evidence);
    if found.is_empty() {
        let measured = if evidence.cpu.is_some() {
            "Nothing that was measured in the container or on the node"
        } else {
            "The container could not be looked into, and nothing that was measured on the node"
        };
        return vec![format!("{measured} stands out ({why}).")];
    }
    found
}

fn percent(part: Duration, whole: Duration) -> String {
    format!("{:.0} %", 100.0 * part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE))
}
