//! Names of the causes of slow and failed ExecSyncs, by which they are counted.

use super::{Cause, ExecVerdict};
use crate::execsync::analysis::{CallRecord, ExecAnalysis};

/// The program of the command, or a program that it calls, does not exist.
pub const MISSING_PROGRAM: &str = "missing-program";
/// The program of the command, or a program that it calls, cannot be executed; the reason may be
/// unknown.
pub const NOT_EXECUTABLE: &str = "not-executable";
/// The working directory of the container does not exist.
pub const MISSING_DIRECTORY: &str = "missing-directory";
/// The response was larger than a message may be, because of the output of the command.
pub const LARGE_OUTPUT: &str = "large-output";
/// So many ExecSyncs were in flight that the node had too little CPU for them.
pub const PROBE_STORM: &str = "probe-storm";
/// The client gave up after the timeout, and the command is not known to have exited.
pub const NO_ANSWER: &str = "no-answer";
/// probeshim injected a fault.
pub const FAULT: &str = "fault";
/// A limit of concurrent ExecSyncs held or refused the call.
pub const EXEC_LIMIT: &str = "exec-limit";
/// probeshim answered the call with the result of another one.
pub const COALESCED: &str = "coalesced";
/// probeshim answered the call, because of a pause.
pub const PAUSED: &str = "paused";

/// probeshim itself caused the error with which the call ended.
pub const OWN_ERROR: &str = "own-error";
/// probeshim itself caused the timeout with which the call ended.
pub const OWN_TIMEOUT: &str = "own-timeout";
/// An error that another finding than one about errors explains.
pub const EXPLAINED_ERROR: &str = "explained-error";
/// A failure of a command that ended with its container, which says nothing about the probe.
pub const ENDED_FAILURE: &str = "ended-failure";

/// Names of results that are no causes.
pub const LEFT_OUT: [&str; 4] = [OWN_ERROR, OWN_TIMEOUT, EXPLAINED_ERROR, ENDED_FAILURE];

/// Causes of errors that have findings of their own. An attempt also finds its container stopped
/// between a kill and the restart.
const EXPLAINED: [&str; 7] = [
    Cause::ContainerExited.name(),
    MISSING_PROGRAM,
    NOT_EXECUTABLE,
    Cause::Frozen.name(),
    Cause::PidsLimit.name(),
    Cause::OutOfMemory.name(),
    Cause::Drain.name(),
];

/// Returns the names of the causes of an ExecSync: what probeshim did to the call, or else those of
/// [`Cause`]. None if the call was quick and succeeded.
#[must_use]
pub fn cause_names(record: &CallRecord) -> Vec<&'static str> {
    let marks = record.call.marks.as_deref();
    if marks.is_some_and(|marks| !marks.faults.is_empty()) {
        return vec![FAULT];
    }
    let is_sent = record.analysis.as_deref().is_none_or(ExecAnalysis::is_sent);
    let policy = marks.and_then(|marks| marks.policy_names().next()).map(policy_name);
    if let Some(policy) = policy.filter(|_| !is_sent) {
        return vec![policy];
    }
    let name = |cause: Cause| match cause {
        Cause::Queue if policy == Some(EXEC_LIMIT) => EXEC_LIMIT,
        cause => cause.name(),
    };
    Cause::all(record).into_iter().map(name).collect()
}

/// Returns the name under which a result is counted in addition to its causes, if findings about
/// such results leave it out: probeshim itself caused an error or a timeout, by a fault or because
/// it did not send the call to the runtime; an error has a finding of its own; a command that
/// failed ended with its container.
#[must_use]
pub fn left_out(record: &CallRecord, verdict: ExecVerdict) -> Option<&'static str> {
    let is_sent = record.analysis.as_deref().is_none_or(ExecAnalysis::is_sent);
    let has_faults = record.call.marks.as_deref().is_some_and(|marks| !marks.faults.is_empty());
    match verdict {
        ExecVerdict::Error if has_faults || !is_sent => Some(OWN_ERROR),
        ExecVerdict::TimedOut if has_faults || !is_sent => Some(OWN_TIMEOUT),
        ExecVerdict::Error if cause_names(record).iter().any(|cause| EXPLAINED.contains(cause)) => {
            Some(EXPLAINED_ERROR)
        }
        ExecVerdict::Failure if record.has_ended_with_container() => Some(ENDED_FAILURE),
        _ => None,
    }
}

impl CallRecord {
    /// Returns whether the container had exited, or exited while the command ran.
    #[must_use]
    pub fn has_ended_with_container(&self) -> bool {
        cause_names(self).contains(&Cause::ContainerExited.name())
    }
}

fn policy_name(policy: &str) -> &'static str {
    match policy {
        "coalesce" => COALESCED,
        "pause" => PAUSED,
        _ => EXEC_LIMIT,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::cri::Code;
    use crate::execsync::analysis::TimeoutMargin;
    use crate::execsync::evidence::{Evidence, PressureStall};
    use crate::execsync::phases::Phases;
    use crate::execsync::slowness::{Assessment, Slow};
    use crate::execsync::{MissingEvents, PhaseDurations, ProbeMatch};
    use crate::relay::{CallMarks, CallOutcome, FaultMark};
    use crate::tap::{Call, ExecCall, ExecResult};

    /// Returns a slow call with changes.
    fn names(change: impl FnOnce(&mut Call, &mut ExecCall, &mut ExecAnalysis)) -> Vec<&'static str> {
        let second = Duration::from_secs(1);
        let mut call = Call::sample(1, "/runtime.v1.RuntimeService/ExecSync", SystemTime::UNIX_EPOCH, second);
        call.ending = CallOutcome::Completed(Some(Code::OK));
        let result = Some(ExecResult { exit_code: 0, stdout_bytes: 0, stderr_bytes: 0 });
        let mut exec = ExecCall { result, ..ExecCall::default() };
        let mut analysis = ExecAnalysis {
            identity: ProbeMatch::Unknown,
            phases: Phases::Complete(PhaseDurations { run: Some(second), ..PhaseDurations::default() }),
            margin: None,
            command_outcome: None,
            container_exited: false,
            assessment: Assessment::Slow(Slow::Threshold),
            evidence: None,
        };
        change(&mut call, &mut exec, &mut analysis);
        call.exec = Some(Box::new(exec));
        let record = CallRecord::unanalyzed(call, None, None);
        cause_names(&CallRecord { analysis: Some(Arc::new(analysis)), ..record })
    }

    #[test]
    fn rejections_and_exit_codes_are_counted_by_what_is_missing() {
        assert_eq!(names(|_, _, _| {}), ["run"]);
        assert_eq!(names(|_, _, analysis| analysis.assessment = Assessment::Fine), [""; 0]);
        for (message, name) in [
            ("exec: \"bash\": executable file not found in $PATH", MISSING_PROGRAM),
            ("exec: \"/bin/sh\": stat /bin/sh: no such file or directory", MISSING_PROGRAM),
            ("exec: \"/x\": permission denied", NOT_EXECUTABLE),
            ("exec /x: no such file or directory", NOT_EXECUTABLE),
            (
                "chdir to cwd (\"/work\") set in config.json failed: no such file or directory",
                MISSING_DIRECTORY,
            ),
            ("trying to send message larger than max (16777221 vs. 16777216)", LARGE_OUTPUT),
            ("fork: resource temporarily unavailable", "pids-limit"),
            ("connect: no such file or directory", "rejected"),
            ("something else", "rejected"),
        ] {
            let rejected = names(|call, exec, _| {
                call.ending = CallOutcome::Completed(Some(Code(2)));
                call.message = Some(message.into());
                exec.command = vec!["/x".to_owned()];
                exec.result = None;
            });
            assert_eq!(rejected, [name], "{message}");
        }
        for (exit_code, output, name) in [
            (127, Some("sh: 1: curl: not found"), MISSING_PROGRAM),
            (127, None, NOT_EXECUTABLE),
            (126, None, NOT_EXECUTABLE),
            (1, None, "exit-code"),
        ] {
            let exited = names(|_, exec, _| {
                exec.result = Some(ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
                exec.output = output.map(Into::into);
            });
            assert_eq!(exited, [name], "{exit_code} {output:?}");
        }
        let without_interpreter = names(|_, exec, _| {
            exec.result = Some(ExecResult { exit_code: 1, stdout_bytes: 0, stderr_bytes: 0 });
            exec.command = vec!["check".to_owned()];
            exec.output = Some("exec /bin/check: no such file or directory".into());
        });
        assert_eq!(without_interpreter, [NOT_EXECUTABLE]);
    }

    #[test]
    fn a_call_in_a_storm_has_no_other_cause_if_the_node_lacks_cpu() {
        let in_flight = |node, cpu| {
            names(move |_, _, analysis| {
                let window = Duration::from_secs(1);
                let node_pressure = Some(PressureStall { cpu, ..PressureStall::default() });
                let load = Some((1.0, 8));
                let in_flight = (1, node);
                let evidence =
                    Evidence { in_flight, node_pressure, psi_window: window, load, ..Evidence::default() };
                analysis.evidence = Some(Arc::new(evidence));
            })
        };
        let waits = Duration::from_millis(500);
        assert_eq!(in_flight(16, waits), [PROBE_STORM]);
        assert_eq!(in_flight(15, waits), ["run"], "there are eight processors");
        assert_eq!(in_flight(16, Duration::ZERO), ["run"], "the processors are idle");
    }

    #[test]
    fn a_call_that_probeshim_affected_is_counted_by_what_affected_it() {
        let marked = |policy: Option<&str>, faults: bool, is_sent: bool| {
            let fault = FaultMark { name: "f".into(), action: "hang".into() };
            let faults = if faults { vec![fault] } else { Vec::new() };
            let marks = CallMarks {
                faults,
                policies: policy.into_iter().map(Arc::from).collect(),
                ..CallMarks::default()
            };
            names(move |call, _, analysis| {
                call.marks = Some(Box::new(marks));
                let parts = PhaseDurations { queue: Duration::from_secs(1), ..PhaseDurations::default() };
                analysis.phases = Phases::Complete(parts);
                if !is_sent {
                    analysis.phases = Phases::Missing { parts, what: MissingEvents::NotSent };
                }
            })
        };
        assert_eq!(marked(None, true, true), [FAULT]);
        assert_eq!(marked(Some("limit"), false, true), [EXEC_LIMIT]);
        assert_eq!(marked(Some("limit"), false, false), [EXEC_LIMIT]);
        assert_eq!(marked(Some("pause"), false, false), [PAUSED]);
        assert_eq!(marked(Some("coalesce"), false, false), [COALESCED]);
    }

    #[test]
    fn a_call_that_its_client_gave_up_after_the_timeout_has_no_answer() {
        let given_up = |margin| {
            names(move |call, exec, analysis| {
                call.ending = CallOutcome::ClientReset(h2::Reason::CANCEL);
                exec.result = None;
                let parts = PhaseDurations::default();
                analysis.phases = Phases::Missing { parts, what: MissingEvents::Everything };
                analysis.margin = Some(margin);
            })
        };
        assert_eq!(given_up(TimeoutMargin::Over(Duration::from_secs(5))), [NO_ANSWER]);
        assert_ne!(given_up(TimeoutMargin::Over(Duration::from_millis(1))), [NO_ANSWER]);
        assert_eq!(given_up(TimeoutMargin::Under(Duration::from_secs(1))), ["unknown-phase"]);
    }
}
