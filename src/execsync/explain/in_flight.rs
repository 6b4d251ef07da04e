//! Explanation of calls in flight.

use std::time::Duration;

use tokio::time::Instant;

use super::advice::DRAIN_ADVICE;
use super::{describe_purpose, peer, place};
use crate::execsync::evidence::ProcessInfo;
use crate::execsync::in_flight::{CallInFlight, CommandProgress};
use crate::relay::{CallMarks, DIRECT};
use crate::tap::{Call, ExecCall};
use crate::terminal::format::{self, duration};

/// Explains a call in flight at a time, one sentence per string. `session` has the processes that
/// the command left, as far as they are known.
#[must_use]
pub fn explain_in_flight(call: &CallInFlight, now: Instant, session: &[ProcessInfo]) -> Vec<String> {
    let CallInFlight { info, details } = call;
    let (pod, container) = (details.pod.clone(), details.container.clone());
    let place = place(&Call { pod, container, ..Call::new(info) });
    let by = info.peer.as_deref().map(peer).unwrap_or_default();
    let age = now.saturating_duration_since(info.since);
    let Some(exec) = details.exec.as_deref() else {
        return vec![
            format!("Call {} is {}{place}{by}.", info.id, info.method),
            format!("It is in flight: the runtime has not answered for {}.", duration(age)),
        ];
    };
    let more = if exec.truncated { " …" } else { "" };
    let does = if details.held.is_some() { "is to execute" } else { "executes" };
    let mut sentences = vec![
        format!("Call {} {does} {}{more}{place}{by}.", info.id, format::command(&exec.command)),
        describe_purpose(&details.probe_match),
        format!("The call is in flight for {}{}.", duration(age), timeout(exec, age)),
    ];
    if let Some(marks) = &details.held {
        sentences.push(describe_hold(marks));
        return sentences;
    }
    let unknown = "Whether the command runs is unknown: no event of the runtime describes it.";
    let has_timed_out = details.progress.is_some_and(|progress| progress.has_timed_out(exec));
    sentences.extend(match details.progress {
        Some(progress) if has_timed_out => describe_timeout(progress, exec, now),
        Some(progress) => describe_progress(progress, now),
        None => vec![unknown.to_owned()],
    });
    let holds = |process: &ProcessInfo| {
        format!(
            "Process {} ({}), which the command started, still runs. It probably holds the output open.",
            process.pid,
            format::command(&process.command)
        )
    };
    sentences.extend(session.iter().map(holds));
    if has_timed_out {
        let seconds = exec.timeout_seconds;
        sentences
            .push(format!("What to do: make the command faster, or raise its timeout (now {seconds}s)."));
    } else if details.progress.is_some_and(|progress| progress.exited.is_some()) {
        sentences.push(format!("What to do: {DRAIN_ADVICE}."));
    }
    sentences
}

/// Describes why probeshim has not sent a call to the runtime yet.
fn describe_hold(marks: &CallMarks) -> String {
    if marks.policy_names().any(|policy| policy == DIRECT) {
        return "probeshim executes the command itself, without the runtime (--exec).".to_owned();
    }
    let fault = marks.faults.last().map(|mark| format!("a fault, {} of the rule {}", mark.action, mark.name));
    let policy = marks.policies.last().map(|policy| match &**policy {
        "limit" => "a limit of concurrent ExecSyncs".to_owned(),
        "coalesce" => "another call with the same request is in flight".to_owned(),
        other => format!("the policy {other}"),
    });
    let reason = policy.or(fault).unwrap_or_else(|| "a policy".to_owned());
    format!("probeshim holds the call, and has not sent it to the runtime. The reason: {reason}.")
}

fn timeout(exec: &ExecCall, age: Duration) -> String {
    let Some(timeout) = exec.timeout() else { return ", and has no timeout".to_owned() };
    match age.checked_sub(timeout) {
        Some(late) => format!(", {} longer than its timeout of {}", duration(late), duration(timeout)),
        None => format!(", and has a timeout of {}", duration(timeout)),
    }
}

fn describe_progress(progress: CommandProgress, now: Instant) -> Vec<String> {
    let ago = |at: Instant| duration(now.saturating_duration_since(at));
    let process = progress.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    match (progress.started, progress.exited) {
        (_, Some(exited)) => {
            let code = progress.status.map(|status| format!(" with code {status}")).unwrap_or_default();
            vec![
                format!("The command{process} exited{code} {} ago.", ago(exited)),
                "The runtime waits for the end of its output, which another process may hold open."
                    .to_owned(),
            ]
        }
        (Some(started), None) => {
            vec![format!("The command{process} started {} ago, and runs.", ago(started))]
        }
        (None, None) => vec!["The runtime has not started the command yet.".to_owned()],
    }
}

/// Describes a command that was killed at its timeout, and whose call is in flight.
fn describe_timeout(progress: CommandProgress, exec: &ExecCall, now: Instant) -> Vec<String> {
    let process = progress.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let timeout = exec.timeout().map(duration).unwrap_or_default();
    let ago = progress.exited.map(|at| duration(now.saturating_duration_since(at))).unwrap_or_default();
    vec![
        format!(
            "The command{process} was still running at its timeout of {timeout} and was killed {ago} ago, so the call \
             fails."
        ),
        "The runtime waits for the end of its output, which another process may hold open.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::cri::MethodName;
    use crate::execsync::in_flight::RequestDetails;
    use crate::relay::{CallInfo, FaultMark};

    fn in_flight(since: Instant, details: RequestDetails) -> CallInFlight {
        let info = CallInfo {
            id: 7,
            peer: None,
            method: MethodName::of_path("/runtime.v1.RuntimeService/ExecSync"),
            start: SystemTime::UNIX_EPOCH,
            since,
            trace: None,
            timeout: None,
        };
        CallInFlight { info, details }
    }

    #[test]
    fn a_call_in_flight_that_a_policy_holds_is_explained_with_the_policy() {
        let since = Instant::now();
        let now = since + Duration::from_secs(11);
        let exec = ExecCall { command: vec!["true".into()], timeout_seconds: 60, ..ExecCall::default() };
        let fault = FaultMark { name: "slow".into(), action: "hang".into() };
        let by_fault = CallMarks { faults: vec![fault], ..CallMarks::default() };
        let by_limit = CallMarks { policies: vec!["limit".into()], ..by_fault.clone() };
        for (marks, reason) in
            [(by_fault, "a fault, hang of the rule slow"), (by_limit, "a limit of concurrent ExecSyncs")]
        {
            let exec = Some(Arc::new(exec.clone()));
            let details = RequestDetails { exec, held: Some(marks), ..RequestDetails::default() };
            let sentences = explain_in_flight(&in_flight(since, details), now, &[]);
            assert_eq!(sentences[0], "Call 7 is to execute true.");
            let hold = format!(
                "probeshim holds the call, and has not sent it to the runtime. The reason: {reason}."
            );
            assert_eq!(
                sentences[2..],
                ["The call is in flight for 11.0s, and has a timeout of 60.0s.", &hold]
            );
        }
    }

    #[test]
    fn a_call_in_flight_after_its_command_has_exited_is_explained_with_the_process_that_holds_its_output() {
        let since = Instant::now();
        let now = since + Duration::from_secs(11);
        let exec = ExecCall {
            command: ["sh", "-c", "sleep 30 & exit 0"].map(str::to_owned).into(),
            truncated: false,
            timeout_seconds: 1,
            result: None,
            output: None,
            is_discarded: false,
        };
        let progress = CommandProgress {
            pid: Some(13_060),
            started: Some(since),
            exited: Some(since + Duration::from_secs(1)),
            status: Some(0),
        };
        let details = RequestDetails {
            exec: Some(Arc::new(exec)),
            progress: Some(progress),
            ..RequestDetails::default()
        };
        let held = ProcessInfo { pid: 13_061, session: 13_060, command: vec!["sleep".into(), "30".into()] };
        let sentences = explain_in_flight(&in_flight(since, details), now, &[held]);
        assert_eq!(sentences[0], "Call 7 executes sh -c 'sleep 30 & exit 0'.");
        assert_eq!(
            sentences[2..],
            [
                "The call is in flight for 11.0s, 10.0s longer than its timeout of 1.00s.",
                "The command (process 13060) exited with code 0 10.0s ago.",
                "The runtime waits for the end of its output, which another process may hold open.",
                "Process 13061 (sleep 30), which the command started, still runs. It probably holds the output open.",
                "What to do: close stdout and stderr of each process that the command leaves running, for example with `>/dev/null 2>&1`.",
            ]
        );
    }
}
