//! `probeshim logs`

mod reader;
mod record;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::time::sleep;
use tonic::Code;

use super::CliError;
use super::admin_args::AdminArgs;
use super::target::{ContainerArgs, TargetContainer, Via};
use crate::config::whole_number;
use crate::cri::v1::{ContainerState, ContainerStatusRequest};
use reader::LogReader;
use record::RecordPrinter;

/// Interval at which `--follow` looks for new lines.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Number of looks without a new line after which `--follow` asks whether the container still runs.
const LOOKS_PER_STATUS: u32 = 5;

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub struct LogsCommand {
    #[command(flatten)]
    container: ContainerArgs,

    /// Print new lines as they are written, until the container ends
    #[arg(short, long, visible_short_alias = 'w', visible_alias = "watch")]
    follow: bool,

    /// Print the log of the previous instance of the container, before its last restart
    #[arg(short, long)]
    previous: bool,

    /// Number of last lines to print, 0 to 4294967295 [default: all]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32, 0, { u32::MAX as u64 }>)]
    tail: Option<u32>,

    /// Print the time of each line
    #[arg(long)]
    timestamps: bool,

    #[command(flatten)]
    at: AdminArgs,
}

impl LogsCommand {
    /// Prints the log of the container. The runtime names its file, which this process reads.
    pub async fn run(self) -> Result<(), CliError> {
        let mut target = self.container.find(&self.at.client()?, Via::Upstream).await?;
        let id = instance(&target, self.previous)?;
        let path = log_of(&mut target, &id).await?;
        let unreadable = |error: io::Error| anyhow!("{}: {error}", path.display());
        let mut reader = LogReader::open(&path, self.tail).map_err(unreadable)?;
        let mut printer = RecordPrinter::new(self.timestamps, io::stdout().is_terminal());
        let mut looks = 0;
        loop {
            let mut text = Vec::new();
            while let Some(line) = reader.next_line().map_err(unreadable)? {
                printer.print(&line, &mut text);
                if text.len() > 1 << 16 && !print(&std::mem::take(&mut text))? {
                    return Ok(());
                }
            }
            let is_idle = text.is_empty();
            if !print(&text)? || !self.follow {
                return Ok(());
            }
            looks = if is_idle { looks + 1 } else { 0 };
            if looks >= LOOKS_PER_STATUS {
                looks = 0;
                // A container that has ended writes no more lines. Those that it wrote before its
                // status was requested are read below.
                if has_ended(&mut target, &id).await && !reader.has_more().map_err(unreadable)? {
                    return Ok(());
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns the id of the instance of the container with the log.
fn instance(target: &TargetContainer, previous: bool) -> Result<String, CliError> {
    let TargetContainer { pod, name, instances, waiting, .. } = target;
    let last_has_ended =
        instances.last().is_some_and(|it| it.state == ContainerState::ContainerExited as i32);
    // While a container waits for its restart, its last instance is the previous one.
    let count = if previous && !(waiting.is_some() && last_has_ended) { 2 } else { 1 };
    match instances.len().checked_sub(count).and_then(|place| instances.get(place)) {
        Some(instance) => Ok(instance.id.clone()),
        None if previous => {
            Err(anyhow!("previous terminated container {name:?} in pod {pod:?} not found").into())
        }
        None => Err(target.not_started()),
    }
}

/// Returns whether the container has exited or was removed. While the runtime does not answer, for
/// example during its restart, the container is assumed to run.
async fn has_ended(target: &mut TargetContainer, id: &str) -> bool {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    match target.runtime.container_status(request).await {
        Ok(answer) => answer
            .into_inner()
            .status
            .is_some_and(|status| status.state == ContainerState::ContainerExited as i32),
        Err(status) => status.code() == Code::NotFound,
    }
}

/// Returns the path of the log of a container.
async fn log_of(target: &mut TargetContainer, id: &str) -> Result<PathBuf, CliError> {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let answer = target.runtime.container_status(request).await;
    let answer = answer.map_err(|status| anyhow!("{}", status.message()))?.into_inner();
    let status = answer.status.unwrap_or_default();
    if status.log_path.is_empty() {
        let TargetContainer { pod, name, .. } = target;
        let reason = "it was created without a log_path, or its sandbox without a log_directory";
        return Err(anyhow!("container {name:?} in pod {pod:?} has no log: {reason}").into());
    }
    Ok(PathBuf::from(status.log_path))
}

/// Writes bytes to standard output. Returns `false` once it is closed.
fn print(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(gone) if gone.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("cannot write to standard output"),
    }
}
