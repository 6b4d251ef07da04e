//! The exec handler: runs a command in the container with an `ExecSync` (`pkg/probe/exec/exec.go`).

use std::time::Duration;

use tonic::Status;

use super::{ContainerNames, Executor};
use super::{MAX_OUTPUT_BYTES, ProbeError, ProbeOutcome, ProbeTarget, ProbeTry};
use crate::cri::RUNTIME_REQUEST_TIMEOUT;
use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use crate::gofmt::{format_duration, quote, rpc_error};

/// Makes one attempt. The runtime ends the command at its timeout.
pub(super) async fn attempt(
    executor: &Executor,
    names: &ContainerNames,
    target: &ProbeTarget<'_>,
    command: &[String],
    timeout_seconds: u32,
) -> ProbeTry {
    let request = ExecSyncRequest {
        container_id: target.container_id.to_owned(),
        cmd: command.to_vec(),
        timeout: timeout_seconds.into(),
    };
    let limit = RUNTIME_REQUEST_TIMEOUT + Duration::from_secs(timeout_seconds.into());
    let (mut answered, call) = executor.exec_sync(names, request, Some(limit)).await;
    if !executor.redacts() {
        return ProbeTry { result: interpret(answered, command, timeout_seconds), call };
    }
    // The output of a command may contain its arguments.
    if let Ok(response) = &mut answered {
        (response.stdout, response.stderr) = (Vec::new(), Vec::new());
    }
    ProbeTry { result: interpret(answered, &command[..1], timeout_seconds), call }
}

/// Returns the probe outcome for a response of the runtime.
fn interpret(
    answered: Result<ExecSyncResponse, Status>,
    command: &[String],
    timeout_seconds: u32,
) -> Result<ProbeOutcome, ProbeError> {
    match answered {
        Ok(response) => {
            let output = output(&response);
            Ok(if response.exit_code == 0 {
                ProbeOutcome::Success(output)
            } else {
                ProbeOutcome::Failure(output)
            })
        }
        // The kubelet does not distinguish a timeout of the runtime from one of the client.
        Err(status) if status.code() == tonic::Code::DeadlineExceeded => Ok(ProbeOutcome::Failure(format!(
            "command timed out: {} timed out after {}",
            quote(&command.join(" ")),
            format_duration(Duration::from_secs(timeout_seconds.into()))
        ))),
        Err(status) => Err(ProbeError::Exec(rpc_error(&status))),
    }
}

/// Returns the output of the command, stdout before stderr, cut to the length that the kubelet
/// keeps.
pub(super) fn output(response: &ExecSyncResponse) -> String {
    let written = response.stdout.iter().chain(&response.stderr).copied();
    let written: Vec<u8> = written.take(MAX_OUTPUT_BYTES).collect();
    String::from_utf8_lossy(&written).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::time::Instant;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "other answers of tests are errors")]
    pub(crate) fn answer(exit_code: i32, stdout: &str, stderr: &str) -> Result<ExecSyncResponse, Status> {
        Ok(ExecSyncResponse { stdout: stdout.into(), stderr: stderr.into(), exit_code })
    }

    #[tokio::test(start_paused = true)]
    async fn an_exec_probe_fails_two_minutes_after_its_timeout_if_the_runtime_does_not_answer() {
        let day = Duration::from_secs(24 * 60 * 60);
        let (executor, begin) = (Executor::fake(move |_| (day, answer(0, "", ""))), Instant::now());
        let spec = crate::manifest::ContainerSpec::named("main");
        let target = ProbeTarget { container_id: "c", container: &spec, pod_ip: "" };
        let attempted = attempt(&executor, &ContainerNames::default(), &target, &["true".to_owned()], 3)
            .await
            .result
            .unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(123));
        assert!(matches!(attempted, ProbeOutcome::Failure(_)), "{attempted:?}");
    }

    /// CRI-O adds the output of a command to the message.
    #[tokio::test]
    async fn a_redacted_error_of_an_exec_probe_has_only_its_code_and_known_cause() {
        let command = ["sh", "-c", "s3cret"].map(str::to_owned);
        let spec = crate::manifest::ContainerSpec::named("main");
        let target = ProbeTarget { container_id: "c", container: &spec, pod_ip: "" };
        for (message, expected) in [
            ("permission denied, stdout: s3cret, stderr: , exit code -1", "permission denied"),
            ("exec s3cret failed: odd", "the message is hidden by --redact-commands"),
        ] {
            let executor =
                Executor::fake(move |_| (Duration::ZERO, Err(Status::unknown(message)))).redacting();
            let attempted = attempt(&executor, &ContainerNames::default(), &target, &command, 1).await;
            let error = format!("rpc error: code = Unknown desc = {expected}");
            assert_eq!(attempted.result, Err(ProbeError::Exec(error)), "{message}");
        }
    }

    /// Repeats `TestExec` (`pkg/probe/exec/exec_test.go`) and `TestNewExecInContainer`
    /// (`prober_test.go`). The row of an error with exit status 0 is omitted, because the response
    /// has the exit code.
    #[test]
    fn upstream_test_exec() {
        let long = "x".repeat(11 << 10);
        let (kept, text) = ("x".repeat(10 << 10), str::to_owned);
        for (row, answered, expected) in [
            ("ok", answer(0, "OK", ""), Ok(ProbeOutcome::Success(text("OK")))),
            ("11 KiB output", answer(0, &long, ""), Ok(ProbeOutcome::Success(kept))),
            (
                "plain error",
                Err(Status::unknown("test error")),
                Err("rpc error: code = Unknown desc = test error"),
            ),
            ("exit 1", answer(1, "Fail", ""), Ok(ProbeOutcome::Failure(text("Fail")))),
            (
                "timeout error",
                Err(Status::deadline_exceeded("timeout 1s exceeded")),
                Ok(ProbeOutcome::Failure(text("command timed out: \"a \\\"b\\\"\" timed out after 1s"))),
            ),
            (
                "CRI-O's timeout",
                answer(-1, "", "command timed out"),
                Ok(ProbeOutcome::Failure(text("command timed out"))),
            ),
            ("stdout, then stderr", answer(1, "out", "err"), Ok(ProbeOutcome::Failure(text("outerr")))),
        ] {
            let judged = interpret(answered, &[text("a"), text("\"b\"")], 1);
            assert_eq!(judged.map_err(|error| error.to_string()), expected.map_err(text), "{row}");
        }
    }
}
