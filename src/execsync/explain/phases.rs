//! Sentences about the phases of an ExecSync.

use std::time::Duration;

use super::percent;
use crate::execsync::analysis::CallRecord;
use crate::execsync::cause::CommandEnd;
use crate::execsync::phases::{MissingEvents, PhaseDurations, Phases};
use crate::relay::CallOutcome;
use crate::terminal::format::duration;

/// Duration of a failed call, and its share of the timeout, up to which the phases say nothing
/// about the failure.
const QUICK: Duration = Duration::from_secs(1);
const QUICK_SHARE: u32 = 2;

/// Describes the phases of a call. Returns `None` where they explain nothing: for a command that
/// was killed at its timeout, and for a call that failed quickly.
pub(super) fn describe(record: &CallRecord, command_end: CommandEnd) -> Option<String> {
    let (exec, analysis) = (record.call.exec.as_deref()?, record.analysis.as_deref()?);
    let total = record.call.duration;
    let is_quick = total <= exec.timeout().map_or(QUICK, |timeout| QUICK.min(timeout / QUICK_SHARE));
    let is_answered = matches!(record.call.ending, CallOutcome::Completed(Some(_)));
    let has_succeeded = matches!(command_end, CommandEnd::Exited(0)) && is_answered;
    let is_explained = command_end == CommandEnd::TimedOut || (is_quick && is_answered && !has_succeeded);
    match &analysis.phases {
        Phases::Complete(_) if is_explained => None,
        phases => Some(describe_phases(phases, total)),
    }
}

/// Describes the division of a call's duration into phases.
fn describe_phases(phases: &Phases, total: Duration) -> String {
    let parts = phases.parts();
    match phases {
        Phases::Complete(_) => describe_slowest_phase(parts, total),
        Phases::Ambiguous { count: 1, .. } => {
            "The phases are unknown: one command ran in the container at that time, and it may belong to \
             this call or to another client."
                .to_owned()
        }
        Phases::Ambiguous { count, .. } => format!(
            "The phases are unknown: {count} commands that may belong to this call ran in the container at that \
             time, and no event shows which of them does.",
        ),
        Phases::Missing { what: MissingEvents::NotSent, .. } => {
            let held = duration(parts.queue);
            format!("The call was not sent to the runtime: probeshim held it for {held}.")
        }
        Phases::Missing { what: MissingEvents::NotWatched, .. } => {
            "The phases are unknown: probeshim does not watch the runtime (--watch-runtime off).".to_owned()
        }
        Phases::Missing { what: MissingEvents::Everything, .. } => {
            "The phases are unknown: probeshim received no event of containerd about this call.".to_owned()
        }
        Phases::Missing { what: MissingEvents::Interrupted, .. } => {
            "The phases are unknown: containerd's events were interrupted during the call.".to_owned()
        }
        Phases::Missing { what: MissingEvents::Started, .. } => format!(
            "No event shows that the command started: {} of the call belongs to no known phase.",
            duration(parts.other)
        ),
        Phases::Missing { what: MissingEvents::Exited, .. } => format!(
            "No event shows that the command exited: {} of the call belongs to no known phase.",
            duration(parts.other)
        ),
        Phases::Unsupported(_) => {
            "The phases are unknown: the runtime has no events about the commands that it executes."
                .to_owned()
        }
    }
}

/// Describes the longest phase and its usual cause.
fn describe_slowest_phase(parts: &PhaseDurations, total: Duration) -> String {
    let (name, time) = parts.slowest().unwrap_or(("other", total));
    let about = match name {
        "queue" => "probeshim held the request before it was sent to the runtime",
        "prepare" => {
            "the runtime prepared the command; it reads the container's description and creates pipes, so a slow \
             disk or a busy runtime makes this phase long"
        }
        "start" if parts.run.is_none() => "the OCI runtime tried to start the command, and failed",
        "start" => "the OCI runtime entered the container and started the command",
        "run" => "the command itself ran",
        "drain" => {
            "the command had exited, and the runtime waited for the end of its output; a process that it started \
             keeps stdout or stderr open, or cleanup was slow"
        }
        _ => "no event shows how this time was spent",
    };
    format!("The longest part, {} ({}), was the {name} phase: {about}.", duration(time), percent(time, total))
}
