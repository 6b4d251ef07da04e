use std::sync::Arc;
use std::time::SystemTime;

use super::*;
use crate::execsync::evidence::{CpuUsage, Evidence, Pids, PidsScope, PressureStall};
use crate::execsync::phases::{MissingEvents, PhaseDurations};
use crate::tap::ExecResult;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the causes of a call of four seconds with a timeout of three, whose command ran.
fn causes(change: impl FnOnce(&mut Call, &mut ExecCall, &mut ExecAnalysis)) -> Vec<Cause> {
    let mut call = Call::sample(1, "/runtime.v1.RuntimeService/ExecSync", SystemTime::UNIX_EPOCH, 4 * SECOND);
    call.ending = CallOutcome::Completed(Some(Code::OK));
    let mut exec = ExecCall { timeout_seconds: 3, ..ExecCall::default() };
    let parts = PhaseDurations { run: Some(3 * SECOND), ..PhaseDurations::default() };
    let margin = Some(TimeoutMargin::Over(SECOND));
    let mut analysis = ExecAnalysis { phases: Phases::Complete(parts), margin, ..ExecAnalysis::unknown() };
    change(&mut call, &mut exec, &mut analysis);
    call.exec = Some(Box::new(exec));
    let record = CallRecord::unanalyzed(call, None, None);
    Cause::all(&CallRecord { analysis: Some(Arc::new(analysis)), ..record })
}

/// Returns the causes of a command that was killed at its timeout, with evidence.
fn timed_out(evidence: &Evidence) -> Vec<Cause> {
    causes(|call, _, analysis| {
        call.ending = CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED));
        analysis.evidence =
            Some(Arc::new(Evidence { window: 4 * SECOND, psi_window: 4 * SECOND, ..evidence.clone() }));
    })
}

/// Returns the causes of a command that exited with a code and wrote an output, with evidence.
fn exited(exit_code: i32, output: &str, evidence: &Evidence) -> Vec<Cause> {
    causes(|_, exec, analysis| {
        exec.result = Some(ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: output.len() });
        exec.output = Some(output.into());
        analysis.evidence = Some(Arc::new(Evidence { window: 4 * SECOND, ..evidence.clone() }));
    })
}

fn pids(current: u64) -> Evidence {
    let pids = Some(Pids { current, max: Some(100), scope: PidsScope::Pod });
    Evidence { pids, ..Evidence::default() }
}

fn cpu(throttled_periods: u64, throttled: Duration) -> Evidence {
    let cpu = CpuUsage { periods: 40, throttled_periods, throttled, ..CpuUsage::default() };
    Evidence { cpu: Some(cpu), ..Evidence::default() }
}

#[test]
fn a_call_that_the_runtime_never_answered_has_that_cause_and_no_slow_command() {
    let gave_up = |late, container_is_frozen| {
        causes(|call, _, analysis| {
            call.ending = CallOutcome::ClientReset(h2::Reason::CANCEL);
            let parts = PhaseDurations::default();
            analysis.phases = Phases::Missing { parts, what: MissingEvents::Everything };
            analysis.margin = Some(TimeoutMargin::Over(late));
            let is_frozen = Some(container_is_frozen);
            analysis.evidence = Some(Arc::new(Evidence { is_frozen, ..Evidence::default() }));
        })
    };
    assert_eq!(gave_up(2 * SECOND, false), [Cause::NoAnswer]);
    assert_eq!(gave_up(2 * SECOND, true), [Cause::Frozen]);
    let at_timeout = gave_up(SECOND / 100, false);
    assert_eq!(at_timeout, [Cause::UnknownPhase], "the client's deadline may equal the timeout");
}

#[test]
fn throttling_for_a_small_part_of_the_time_does_not_explain_a_timeout() {
    assert_eq!(timed_out(&cpu(6, SECOND / 2)), [Cause::Run], "a sixth of the periods");
    assert_eq!(timed_out(&cpu(30, 3 * SECOND)), [Cause::Throttled]);
}

#[test]
fn throttling_is_a_second_cause_only_of_a_failed_call_that_was_slow() {
    let quick = |call: &mut Call| call.duration = SECOND / 5;
    let failed = |is_quick: bool| {
        causes(|call, exec, analysis| {
            exec.result = Some(ExecResult { exit_code: 1, stdout_bytes: 0, stderr_bytes: 0 });
            let window = if is_quick { SECOND / 5 } else { 4 * SECOND };
            analysis.evidence = Some(Arc::new(Evidence { window, ..cpu(30, 3 * SECOND) }));
            if is_quick {
                quick(call);
            }
        })
    };
    assert_eq!(failed(true), [Cause::ExitCode(1)]);
    assert_eq!(failed(false), [Cause::ExitCode(1), Cause::Throttled]);
}

#[test]
fn a_shell_that_cannot_start_a_process_until_its_timeout_is_at_the_process_limit() {
    assert_eq!(timed_out(&pids(100)), [Cause::PidsLimit, Cause::Run]);
    assert_eq!(timed_out(&pids(95)), [Cause::Run], "there is room for five processes");
}

#[test]
fn the_message_of_a_shell_without_processes_counts_only_near_the_limit() {
    for output in [
        "sh: 1: Cannot fork",
        "sh: can't fork: Resource temporarily unavailable",
        "bash: fork: retry: Resource temporarily unavailable",
        "RuntimeError: can't start new thread",
    ] {
        assert_eq!(exited(2, output, &pids(99)), [Cause::PidsLimit], "{output}");
        assert_eq!(exited(2, output, &pids(5)), [Cause::ExitCode(2)], "{output}");
    }
}

#[test]
fn a_shell_that_reports_a_killed_program_ran_out_of_memory_if_the_kernel_killed_one() {
    let killed = |oom_kills| Evidence { oom_kills: Some(oom_kills), ..Evidence::default() };
    for output in ["Killed", "bash: line 1:    12 Killed                  head -c 1G /dev/zero"] {
        assert_eq!(exited(1, output, &killed(1)), [Cause::OutOfMemory], "{output}");
        assert_eq!(exited(1, output, &killed(0)), [Cause::ExitCode(1)], "{output}");
    }
}

#[test]
fn a_rejection_has_the_cause_in_its_message_before_what_was_measured() {
    let rejected = |message: &str, code, container_exited, evidence| {
        causes(|call, _, analysis| {
            call.ending = CallOutcome::Completed(Some(code));
            call.message = Some(message.into());
            analysis.container_exited = container_exited;
            analysis.evidence = Some(Arc::new(evidence));
        })
    };
    let missing = "exec: \"curl\": executable file not found in $PATH: unknown";
    let unknown = Code(2);
    assert_eq!(rejected(missing, unknown, false, pids(99)), [Cause::ExecFailed(ExecFailure::NoProgram)]);
    let broken = "unable to start container process: write init-p: broken pipe: unknown";
    assert_eq!(rejected(broken, unknown, true, Evidence::default()), [Cause::ContainerExited]);
    assert_eq!(rejected(broken, unknown, false, pids(99)), [Cause::PidsLimit]);
    assert_eq!(rejected(broken, unknown, false, Evidence::default()), [Cause::Rejected(unknown)]);
    let lost = rejected("transport is closing", Code::UNAVAILABLE, false, Evidence::default());
    assert_eq!(lost, [Cause::RuntimeLost]);
}

#[test]
fn a_command_waits_if_others_lacked_cpu_for_a_part_of_the_time_only() {
    let waits = |stalled| {
        let used = CpuUsage { used: Some(SECOND / 100), ..CpuUsage::default() };
        let node_pressure = Some(PressureStall { cpu: stalled, ..PressureStall::default() });
        let (window, psi_window) = (4 * SECOND, 4 * SECOND);
        let evidence = Evidence { window, psi_window, cpu: Some(used), node_pressure, ..Evidence::default() };
        limits::has_waited(&evidence)
    };
    assert!(waits(SECOND), "it had at least three seconds without competitors");
    assert!(!waits(3 * SECOND));
}
