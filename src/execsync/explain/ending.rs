//! Sentences about the end of an ExecSync and of its command.

use std::time::Duration;

use crate::cri::{Code, KILLED, signal_name};
use crate::execsync::analysis::{CommandOutcome, ExecAnalysis, TimeoutMargin};
use crate::execsync::cause::{CRIO_TIMEOUT, CommandEnd, is_kubelet_deadline};
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};
use crate::terminal::format::duration;

/// Status of a command that SIGKILL ended.
const KILLED_STATUS: u32 = KILLED.cast_unsigned();

/// Minimum duration of the drain phase after a timeout that is mentioned.
const MENTIONED_DRAIN: Duration = Duration::from_millis(250);

/// Minimum duration of the drain phase that only a child which holds the output explains. A busy
/// runtime takes some time to answer.
const CHILD_DRAIN: Duration = Duration::from_secs(1);

/// Describes how long a call took, and how it ended.
pub(super) fn describe_outcome(call: &Call, exec: &ExecCall, analysis: &ExecAnalysis) -> String {
    let took = duration(call.duration);
    if !analysis.is_sent() {
        let end = match (call.ending, exec.result) {
            (CallOutcome::Completed(_), Some(result)) => {
                format!("probeshim answered it with exit code {}", result.exit_code)
            }
            (CallOutcome::Completed(Some(code)), None) => format!("probeshim answered it with {code}"),
            _ => end(call.ending),
        };
        return format!("The call took {took}, and {end}.");
    }
    let held = analysis.phases.parts().queue;
    let took = match call.marks {
        Some(_) if !held.is_zero() => format!("{took}, of which probeshim held it for {}", duration(held)),
        _ => took,
    };
    let margin = match (exec.timeout(), analysis.margin) {
        (Some(timeout), Some(TimeoutMargin::Under(margin))) => {
            format!(", {} less than the timeout of {}", duration(margin), duration(timeout))
        }
        (Some(timeout), Some(TimeoutMargin::Over(margin))) => {
            format!(", {} more than the timeout of {}", duration(margin), duration(timeout))
        }
        _ => " without a timeout".to_owned(),
    };
    match (call.ending, exec.result.map(|result| result.exit_code)) {
        (_, Some(CRIO_TIMEOUT)) => {
            format!("The call took {took}{margin}; with exit code -1, CRI-O reports a timeout.")
        }
        (_, Some(code)) => {
            let signal = signal_name(code).map(|signal| format!(" ({signal})")).unwrap_or_default();
            format!("The call took {took}{margin}, and the command exited with code {code}{signal}.")
        }
        (CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)), None) => {
            format!("The runtime returned DEADLINE_EXCEEDED after {took}{margin}.")
        }
        (CallOutcome::ClientReset(_) | CallOutcome::ClientGone, None) => {
            let gave_up = format!("The client gave up after {took}{margin}; the runtime had not responded.");
            gave_up + deadline_of(call, analysis)
        }
        (ending, None) => format!("The call took {took}{margin}, and {}.", end(ending)),
    }
}

/// Names the deadline of a client that gave up after the timeout.
fn deadline_of(call: &Call, analysis: &ExecAnalysis) -> &'static str {
    let is_late = matches!(analysis.margin, Some(TimeoutMargin::Over(_)));
    let is_crictl = call.peer.as_deref().and_then(|peer| peer.program.as_deref()) == Some("crictl");
    if is_kubelet_deadline(call, Some(analysis)) {
        " A kubelet waits two minutes longer than the timeout."
    } else if is_late && is_crictl {
        " crictl waits as long as its own --timeout (2s by default) beyond the timeout of the command; a kubelet \
         waits two minutes."
    } else {
        ""
    }
}

/// Describes the end of a call that returned no exit code.
pub(super) fn end(ending: CallOutcome) -> String {
    match ending {
        CallOutcome::Completed(Some(code)) => format!("the runtime returned {code}"),
        CallOutcome::Completed(None) => "the runtime's response had no gRPC status".to_owned(),
        CallOutcome::ClientReset(_) => "the client gave up".to_owned(),
        CallOutcome::UpstreamReset(_) => "the runtime reset the stream".to_owned(),
        CallOutcome::Refused => "the runtime never accepted the call".to_owned(),
        CallOutcome::ConnectionLost => "the connection to the runtime was lost".to_owned(),
        CallOutcome::ClientGone => "the client's connection ended".to_owned(),
    }
}

/// Describes the start and the end of a command whose call returned no exit code. A command that
/// was killed at its timeout was too slow, whatever followed.
pub(super) fn describe_command(
    exec: &ExecCall,
    analysis: &ExecAnalysis,
    command_end: CommandEnd,
) -> Option<String> {
    let outcome = analysis.command_outcome;
    if let (CommandEnd::TimedOut, Some(timeout)) = (command_end, exec.timeout()) {
        let timeout = duration(timeout);
        // Only SIGKILL shows that the runtime ended the command.
        if let Some(status) =
            outcome.and_then(|outcome| outcome.status).filter(|status| *status != KILLED_STATUS)
        {
            return Some(format!(
                "The command was still running at its timeout of {timeout}, and ended then with code {status}."
            ));
        }
        let killed = format!("The command was still running at its timeout of {timeout} and was killed");
        let drain = analysis.phases.parts().drain.filter(|drain| *drain >= MENTIONED_DRAIN);
        return Some(match drain {
            Some(drain) if drain < CHILD_DRAIN => format!(
                "{killed}; the runtime answered {} later, which does not change the result.",
                duration(drain)
            ),
            Some(drain) => format!(
                "{killed}; a child held the output for another {}, which does not change the result.",
                duration(drain)
            ),
            None => format!("{killed}."),
        });
    }
    outcome.map(|outcome| describe_events(outcome, command_end))
}

/// Describes the events about a command.
fn describe_events(outcome: CommandOutcome, command_end: CommandEnd) -> String {
    let Some(started) = outcome.started.map(duration) else {
        return "No event shows that the command started.".to_owned();
    };
    match (outcome.exited.map(duration), outcome.status) {
        (Some(exited), Some(KILLED_STATUS)) if command_end == CommandEnd::Cancelled => format!(
            "The command started after {started}, was still running when the client gave up, and was killed after \
             {exited} (SIGKILL)."
        ),
        (Some(exited), Some(KILLED_STATUS)) => {
            format!("The command started after {started} and was killed after {exited} (SIGKILL).")
        }
        (Some(exited), Some(status)) => match signal_name(status.cast_signed()) {
            Some(signal) => format!(
                "The command started after {started} and ended after {exited} with status {status}: {signal} ended it, \
                 or it exited with that code."
            ),
            None => {
                format!("The command started after {started} and exited after {exited}, with code {status}.")
            }
        },
        _ => format!("The command started after {started}; no event shows that it ended."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_above_128_is_a_signal_only_if_a_signal_has_this_number() {
        let ended = |status| {
            let time = Some(Duration::from_millis(10));
            let outcome = CommandOutcome { started: time, exited: time, status: Some(status) };
            describe_events(outcome, CommandEnd::Exited(status.cast_signed()))
        };
        assert!(ended(137).ends_with("was killed after 10.0ms (SIGKILL)."), "{}", ended(137));
        let terminated = ended(143);
        assert!(terminated.ends_with("SIGTERM ended it, or it exited with that code."), "{terminated}");
        for status in [1, 255] {
            assert!(
                ended(status).ends_with(&format!("exited after 10.0ms, with code {status}.")),
                "{status}"
            );
        }
    }
}
