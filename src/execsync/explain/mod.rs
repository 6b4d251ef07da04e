//! Explanation of calls in sentences. Each sentence contains the numbers on which it is based.

mod advice;
mod ending;
mod findings;
mod in_flight;
mod phases;
mod stop;
mod verdict;

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

pub(crate) use advice::DRAIN_ADVICE;
pub use in_flight::explain_in_flight;
pub use stop::ContainerStop;

use super::analysis::{CallRecord, ExecAnalysis};
use super::cause::{Cause, CommandEnd};
use super::identity::ProbeMatch;
use super::slowness::{Assessment, Slow};
use crate::cri::Code;
use crate::relay::{CallMarks, CallOutcome, DIRECT, FaultMark, Peer};
use crate::tap::{Call, ExecCall, KillRecord, ProbeFailure};
use crate::terminal::format::{self, duration};

/// Maximum number of lines of a quoted text.
const MAX_LINES: usize = 20;

/// Explains a call, one sentence per string.
#[must_use]
pub fn explain(record: &CallRecord) -> Vec<String> {
    explain_with_stop(record, None)
}

/// Explains a call and the stop of its container that [it shows](ContainerStop::is_shown_by).
#[must_use]
pub fn explain_with_stop(record: &CallRecord, stop: Option<&ContainerStop>) -> Vec<String> {
    let call = &*record.call;
    let is_sent = record.analysis.as_deref().is_none_or(ExecAnalysis::is_sent);
    let mut sentences = vec![describe_call(call, is_sent)];
    sentences.extend(faults(call));
    sentences.extend(policies(record));
    if let Some(kill) = call.kill.as_deref() {
        sentences.extend(self::kill(kill));
        sentences.push(format!(
            "The call took {}, and {}.",
            duration(call.duration),
            ending::end(call.ending)
        ));
        sentences.extend(status_message(call));
        sentences.push(format!(
            "What to do: fix the cause that the failed attempts name, or raise failureThreshold or \
             timeoutSeconds of the {} probe.",
            kill.probe
        ));
        return sentences;
    }
    let (Some(exec), Some(insight)) = (call.exec.as_deref(), record.analysis.as_deref()) else {
        sentences.push(format!(
            "The call took {}, and {}.",
            duration(call.duration),
            ending::end(call.ending)
        ));
        sentences.extend(status_message(call));
        sentences.extend(stop.into_iter().flat_map(ContainerStop::describe));
        return sentences;
    };
    let causes = Cause::all(record);
    let command_end = CommandEnd::from_call(call, exec, Some(insight));
    sentences.push(describe_purpose(&insight.identity));
    sentences.push(ending::describe_outcome(call, exec, insight));
    sentences.extend(status_message(call));
    sentences.extend(output(exec));
    sentences.extend(verdict::verdict(record));
    sentences.extend(stop.and_then(|stop| stop.describe_after(record)));
    sentences.extend(ending::describe_command(exec, insight, command_end));
    sentences.extend(phases::describe(record, command_end));
    sentences.extend(container_exit(exec, &causes));
    sentences.extend(evidence(insight, &causes, call.is_affected()));
    sentences.extend(advice::advice(record, exec, insight, &causes));
    sentences
}

/// Quotes the status message with which the runtime rejected a call.
fn status_message(call: &Call) -> Vec<String> {
    let title = if call.is_affected() { "The status message was" } else { "The runtime's message was" };
    call.message.as_deref().map(|message| quoted(title, message, false)).unwrap_or_default()
}

/// Describes the faults that were injected into a call.
fn faults(call: &Call) -> Vec<String> {
    let marks = call.marks.iter().flat_map(|marks| &marks.faults);
    let sentence = |mark: &FaultMark| {
        format!("probeshim injected a fault into this call: {}, of the rule {}.", mark.action, mark.name)
    };
    marks.map(sentence).collect()
}

/// Describes how other policies affected a call.
fn policies(record: &CallRecord) -> Vec<String> {
    let call = &*record.call;
    let is_sent = record.analysis.as_deref().is_none_or(ExecAnalysis::is_sent);
    let is_rejected = call.ending == CallOutcome::Completed(Some(Code::RESOURCE_EXHAUSTED)) && !is_sent;
    let sentence = |policy: &str| match policy {
        "limit" if !is_sent && !is_rejected => {
            "probeshim held this call until its client gave up, because of a limit of concurrent ExecSyncs."
        }
        "limit" if is_rejected => {
            "probeshim refused this call, because a limit of concurrent ExecSyncs was reached."
        }
        "limit" => {
            "probeshim held this call until others had ended, because of a limit of concurrent ExecSyncs."
        }
        "coalesce" => {
            "probeshim held this call while another with the same request ran, to share its result."
        }
        "pause" => "probeshim answered this call itself, because the probes of the container are paused.",
        DIRECT => "probeshim executed the command itself, without the runtime (--exec).",
        _ => "A policy of probeshim affected this call.",
    };
    let marks = call.marks.as_deref();
    let policies =
        marks.into_iter().flat_map(CallMarks::policy_names).map(|policy| sentence(policy).to_owned());
    let forwarded = marks.and_then(CallMarks::forwarded_because);
    let forwarded =
        forwarded.map(|reason| format!("The runtime executed the command, and not probeshim: {reason}."));
    policies.chain(forwarded).collect()
}

/// Describes the exit of the container if it ended the command.
fn container_exit(exec: &ExecCall, causes: &[Cause]) -> Option<String> {
    let is_it = exec.result.is_some() && causes.contains(&Cause::ContainerExited);
    is_it.then(|| "The container exited while the command ran, and its processes ended with it.".to_owned())
}

/// Quotes the output of a command, or its beginning.
fn output(exec: &ExecCall) -> Vec<String> {
    match exec.output.as_deref().map(str::trim_end) {
        None => Vec::new(),
        Some("") => vec!["The command wrote no output.".to_owned()],
        Some(output) if exec.is_output_cut() => quoted("The output began with", output, true),
        Some(output) => quoted("The output was", output, false),
    }
}

/// Quotes a text, or the beginning of one that `is_cut`: in the sentence if it is one line,
/// otherwise each line as a sentence.
fn quoted(title: &str, text: &str, is_cut: bool) -> Vec<String> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if let [line] = lines[..] {
        return vec![format!("{title}: {line}")];
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    let shown = lines.iter().take(MAX_LINES).map(|line| format!("| {line}"));
    let rest = match more {
        _ if is_cut => Some("| … more, which is not kept".to_owned()),
        0 => None,
        1 => Some("| … 1 more line".to_owned()),
        _ => Some(format!("| … {more} more lines")),
    };
    [format!("{title}:")].into_iter().chain(shown).chain(rest).collect()
}

fn describe_call(call: &Call, is_sent: bool) -> String {
    let by = call.peer.as_deref().map(peer).unwrap_or_default();
    let place = place(call);
    match call.exec.as_deref() {
        Some(exec) => {
            let more = if exec.truncated { " …" } else { "" };
            let did = if is_sent { "executed" } else { "was to execute" };
            format!("Call {} {did} {}{more}{place}{by}.", call.id, format::command(&exec.command))
        }
        None => format!("Call {} was {}{place}{by}.", call.id, call.method),
    }
}

/// Describes the cause of a kill.
fn kill(kill: &KillRecord) -> Vec<String> {
    let KillRecord { probe, message, threshold, grace_period, failures } = kill;
    let mut sentences = vec![
        match threshold {
            1 => format!("{message}: the {probe} probe failed, and its failure threshold is 1."),
            _ => format!(
                "{message}: the {probe} probe failed {threshold} times in a row, which is its failure threshold."
            ),
        },
        format!("The container had a grace period of {grace_period}s."),
    ];
    let at = |failure: &ProbeFailure| format!("{}: {}", time_of(failure.at), failure.message.trim_end());
    if failures.len() == 1 {
        sentences.push(format!("The failed attempt, {}", failures.iter().map(at).collect::<String>()));
    } else if !failures.is_empty() {
        sentences.push(format!("The last {} failed attempts:", failures.len()));
        sentences.extend(failures.iter().map(at));
    }
    sentences
}

/// Formats a time in UTC, in whole seconds.
fn time_of(at: SystemTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| "at an unknown time".to_owned(), |at| format!("at {at:.0}"))
}

fn peer(peer: &Peer) -> String {
    let program = peer.program.as_deref().unwrap_or("an unknown program");
    match peer.pid {
        Some(pid) => format!(", requested by {program} (pid {pid}, uid {})", peer.uid),
        None => format!(", requested by {program} (uid {})", peer.uid),
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
                    format!(
                        "The command belongs to the {name} probe, which runs every {} (source: {source}).",
                        duration(*period)
                    )
                }
                ([name], None) => format!("The command belongs to the {name} hook (source: {source})."),
                (names, _) => format!(
                    "The command belongs to {}, which have the same command and timeout (source: {source}).",
                    names.join(" or ")
                ),
            }
        }
        ProbeMatch::Inferred { period, confidence } => format!(
            "The command runs every {}, like a probe, but no known probe matches it (source: inferred from the period, \
             confidence {confidence}).",
            duration(*period)
        ),
        ProbeMatch::Unknown => "No known probe or hook matches this command.".to_owned(),
    }
}

/// Describes the measurements that can explain the causes.
fn evidence(insight: &ExecAnalysis, causes: &[Cause], is_affected: bool) -> Vec<String> {
    let why = match insight.assessment {
        Assessment::Fine => {
            let subject =
                if is_affected { "Apart from the fault or limit of probeshim, the call" } else { "The call" };
            return vec![format!(
                "{subject} was quick and succeeded, so probeshim measured neither the container nor the node."
            )];
        }
        Assessment::Failed => "the call failed",
        Assessment::Slow(Slow::HalfOfTimeout) => "the call took more than half of its timeout",
        Assessment::Slow(Slow::Threshold) => "the call took longer than --slow-threshold",
        Assessment::Slow(Slow::OverTripleMedian) => "the call took more than three times as long as usual",
    };
    let depends_on_node = causes.iter().any(|cause| cause.depends_on_node());
    let Some(evidence) = insight.evidence.as_deref() else {
        let missing = format!(
            "Because {why}, probeshim tried to measure the container and the node, but there is no result."
        );
        return depends_on_node.then_some(missing).into_iter().collect();
    };
    let found = findings::notable(evidence, causes);
    if found.is_empty() && depends_on_node {
        let measured = if evidence.cpu.is_some() {
            "No measurement of the container or the node"
        } else {
            "The container could not be measured, and no measurement of the node"
        };
        return vec![format!("{measured} stands out (measured because {why}).")];
    }
    found
}

/// Returns a share in percent: `12 %`.
fn percent(part: Duration, whole: Duration) -> String {
    format!("{:.0} %", 100.0 * part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE))
}
