//! `probeshim exec`

use std::io;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tonic::Code;

use super::CliError;
use super::admin_args::AdminArgs;
use super::target::{ContainerArgs, Via};
use crate::config::BoundedDuration;
use crate::cri::v1::{ContainerState, ExecSyncRequest};
use crate::terminal::format;

/// Arguments of `exec`.
#[derive(Debug, Args)]
pub struct ExecCommand {
    /// Name of the pod, NAMESPACE/NAME, uid, or KIND/NAME of a workload, of which one pod is chosen
    #[arg(value_name = "POD")]
    pod: String,

    #[command(flatten)]
    container: ContainerArgs,

    /// Time after which the runtime kills the command, 1s to 24h [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    timeout: Option<BoundedDuration<1>>,

    /// Not supported: commands have no standard input
    #[arg(short = 'i', long, hide = true)]
    stdin: bool,

    /// Not supported: commands have no terminal
    #[arg(short = 't', long, hide = true)]
    tty: bool,

    #[command(flatten)]
    at: AdminArgs,

    /// Command to execute, with its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<String>,
}

impl ExecCommand {
    /// Executes the command in the container, and prints its output. Returns its exit code.
    pub async fn run(self) -> Result<u8, CliError> {
        let Self { pod, container, timeout, stdin, tty, at, command } = self;
        let mut target = container.find(&pod, &at.client()?, Via::Relay).await?;
        let Some(instance) = target.instances.last() else { return Err(target.not_started()) };
        if stdin || tty {
            return Err(CliError::Usage(format!(
                "exec runs only commands without standard input and terminal; for an interactive one use \
                 crictl exec -it {} CMD",
                instance.id
            )));
        }
        if instance.state != ContainerState::ContainerRunning as i32 {
            let (pod, name) = (&target.pod, &target.name);
            return Err(anyhow!("container {name:?} in pod {pod:?} does not run").into());
        }
        let limit = timeout.map(Duration::from);
        let seconds = limit.map_or(0, whole_seconds);
        let request = ExecSyncRequest { container_id: instance.id.clone(), cmd: command, timeout: seconds };
        let answer = target.runtime.exec_sync(request).await.map_err(|status| match (status.code(), limit) {
            (Code::DeadlineExceeded, Some(limit)) => {
                anyhow!("the command did not end within {} and was killed", format::duration(limit))
            }
            _ => anyhow!("{}", status.message()),
        });
        let answer = answer?.into_inner();
        write_all(io::stdout().lock(), &answer.stdout)?;
        write_all(io::stderr().lock(), &answer.stderr)?;
        Ok(u8::try_from(answer.exit_code).unwrap_or(1))
    }
}

/// Writes the output of a command unchanged. A reader that has gone is no error.
fn write_all(mut to: impl io::Write, bytes: &[u8]) -> anyhow::Result<()> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the output")
        }
        _ => Ok(()),
    }
}

/// Returns a time limit in the whole seconds of a request, rounded up.
fn whole_seconds(limit: Duration) -> i64 {
    let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
