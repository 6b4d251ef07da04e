//! exec: a command is executed in the container, with an `ExecSync`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tonic::Status;

use super::go::{quoted, rpc_error, seconds};
use super::{Attempt, AttemptError, LONGEST_OUTPUT, Target};
use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use crate::cri::{Code, OwnClient};
use crate::tap::{Container, ExecResult, OwnExecs, Pod};

/// How much longer than the command's timeout the runtime may take, as the kubelet's `runtimeRequestTimeout`.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whose command it is.
#[derive(Clone, Debug)]
pub struct ExecProbe {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The container.
    pub container: Arc<Container>,
}

/// Executes commands.
#[derive(Clone, Debug)]
pub struct Executor {
    way: Way,
    told: Option<OwnExecs>,
    /// Whether of commands only the program is told, and nothing of what they write.
    redacts: bool,
}

/// How it executes them.
#[derive(Clone, Debug)]
enum Way {
    /// The runtime does.
    Runtime(OwnClient),
    /// A test answers.
    #[cfg(test)]
    Played(tests::Player),
}

impl Executor {
    /// Executes through this client, and tells of it. `redacts`: of commands only the program is told, and nothing of what they write.
    #[must_use]
    pub fn new(client: OwnClient, told: Option<OwnExecs>, redacts: bool) -> Self {
        Self { way: Way::Runtime(client), told, redacts }
    }

    async fn exec_sync(
        &self,
        probe: &ExecProbe,
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse, Status> {
        let limit = PATIENCE + Duration::from_secs(request.timeout.unsigned_abs());
        let (pod, container) = (&probe.pod, &probe.container);
        let told = self.told.as_ref();
        let told =
            told.and_then(|it| it.begin(pod.clone(), container.clone(), &request.cmd, request.timeout));
        let answered = timeout(limit, self.way.exec_sync(request)).await;
        let expired = || Err(Status::deadline_exceeded("context deadline exceeded"));
        let answered = answered.unwrap_or_else(|_| expired());
        if let Some(told) = told {
            let code = answered.as_ref().map_or_else(|status| Code::from(status.code()), |_| Code::OK);
            told.end(code, answered.as_ref().ok().map(result_of));
        }
        answered
    }
}

impl Way {
    async fn exec_sync(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, Status> {
        match self {
            Self::Runtime(client) => client.clone().exec_sync(request).await.map(tonic::Response::into_inner),
            #[cfg(test)]
            Self::Played(player) => player.play(request).await,
        }
    }
}

/// One attempt. The runtime is who ends the command at its timeout.
pub(super) async fn attempt(
    executor: &Executor,
    probe: ExecProbe,
    target: &Target<'_>,
    command: &[String],
    timeout_seconds: u32,
) -> Result<Attempt, AttemptError> {
    let request = ExecSyncRequest {
        container_id: target.container_id.to_owned(),
        cmd: command.to_vec(),
        timeout: timeout_seconds.into(),
    };
    let mut answered = executor.exec_sync(&probe, request).await;
    if !executor.redacts {
        return judged(answered, command, timeout_seconds);
    }
    // What a command writes may well name what it was told.
    if let Ok(response) = &mut answered {
        (response.stdout, response.stderr) = (Vec::new(), Vec::new());
    }
    judged(answered, &command[..1], timeout_seconds)
}

/// What an answer is remembered by.
fn result_of(response: &ExecSyncResponse) -> ExecResult {
    ExecResult {
        exit_code: response.exit_code,
        stdout_bytes: response.stdout.len(),
        stderr_bytes: response.stderr.len(),
    }
}

/// What an answer means for the probe.
fn judged(
    answered: Result<ExecSyncResponse, Status>,
    command: &[String],
    timeout_seconds: u32,
) -> Result<Attempt, AttemptError> {
    match answered {
        Ok(response) => {
            let output = output(&response);
            Ok(if response.exit_code == 0 { Attempt::Success(output) } else { Attempt::Failure(output) })
        }
        // As the runtime ends it, or we do: the kubelet does not tell the two apart.
        Err(status) if status.code() == tonic::Code::DeadlineExceeded => Ok(Attempt::Failure(format!(
            "command timed out: {} timed out after {}",
            quoted(&command.join(" ")),
            seconds(timeout_seconds)
        ))),
        Err(status) => Err(AttemptError::Exec(rpc_error(&status))),
    }
}

/// What the command wrote: all of stdout, then all of stderr, as much of it as the kubelet keeps.
fn output(response: &ExecSyncResponse) -> String {
    let written = response.stdout.iter().chain(&response.stderr).copied();
    let written: Vec<u8> = written.take(LONGEST_OUTPUT).collect();
    String::from_utf8_lossy(&written).into_owned()
}

#[cfg(test)]
pub(in crate::prober) mod tests {
    use std::fmt;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// Answers commands as a test says, after as long as it says.
    #[derive(Clone)]
    pub(in crate::prober) struct Player(Arc<Play>);

    type Answered = Result<ExecSyncResponse, Status>;
    type Play = dyn Fn(&ExecSyncRequest) -> (Duration, Answered) + Send + Sync;

    impl Player {
        pub(super) async fn play(&self, request: ExecSyncRequest) -> Answered {
            let (takes, answered) = (self.0)(&request);
            sleep(takes).await;
            answered
        }
    }

    impl fmt::Debug for Player {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Player")
        }
    }

    impl Executor {
        /// Commands are answered by a test.
        pub(in crate::prober) fn played(
            play: impl Fn(&ExecSyncRequest) -> (Duration, Answered) + Send + Sync + 'static,
        ) -> Self {
            Self { way: Way::Played(Player(Arc::new(play))), told: None, redacts: false }
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "others do not go well")]
    pub(in crate::prober) fn answer(
        exit_code: i32,
        stdout: &str,
        stderr: &str,
    ) -> Result<ExecSyncResponse, Status> {
        Ok(ExecSyncResponse { stdout: stdout.into(), stderr: stderr.into(), exit_code })
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_does_not_answer_has_two_minutes_more_than_the_command() {
        let day = Duration::from_secs(24 * 60 * 60);
        let (executor, begin) = (Executor::played(move |_| (day, answer(0, "", ""))), Instant::now());
        let spec = crate::probe::ContainerSpec::named("main");
        let target = Target { container_id: "c", container: &spec, pod_ip: "" };
        let probe = ExecProbe { pod: Arc::default(), container: Arc::default() };
        let attempted = attempt(&executor, probe, &target, &["true".to_owned()], 3).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(123));
        assert!(matches!(attempted, Attempt::Failure(_)), "{attempted:?}");
    }

    /// Table 9.4, exec, and 9.3, `NewExecInContainer`. An error with exit status 0 does not exist here: the exit code is in the answer.
    #[test]
    fn table_9_4_exec() {
        let long = "x".repeat(11 << 10);
        let (kept, text) = ("x".repeat(10 << 10), str::to_owned);
        for (row, answered, expected) in [
            ("ok", answer(0, "OK", ""), Ok(Attempt::Success(text("OK")))),
            ("11 KiB output", answer(0, &long, ""), Ok(Attempt::Success(kept))),
            (
                "plain error",
                Err(Status::unknown("test error")),
                Err("rpc error: code = Unknown desc = test error"),
            ),
            ("exit 1", answer(1, "Fail", ""), Ok(Attempt::Failure(text("Fail")))),
            (
                "timeout error",
                Err(Status::deadline_exceeded("timeout 1s exceeded")),
                Ok(Attempt::Failure(text("command timed out: \"a \\\"b\\\"\" timed out after 1s"))),
            ),
            (
                "CRI-O's timeout",
                answer(-1, "", "command timed out"),
                Ok(Attempt::Failure(text("command timed out"))),
            ),
            ("stdout, then stderr", answer(1, "out", "err"), Ok(Attempt::Failure(text("outerr")))),
        ] {
            let judged = judged(answered, &[text("a"), text("\"b\"")], 1);
            assert_eq!(judged.map_err(|error| error.to_string()), expected.map_err(text), "{row}");
        }
    }
}
