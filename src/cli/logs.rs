//! `probeshim logs`

mod reader;
mod record;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use tokio::time::sleep;
use tonic::Code;

use super::CliError;
use super::admin_args::AdminArgs;
use super::label_selector::LabelSelector;
use super::stderr::note;
use super::target::{ContainerArgs, TargetContainer, Via};
use crate::config::{BoundedDuration, whole_number};
use crate::cri::v1::{ContainerState, ContainerStatusRequest};
use reader::LogReader;
use record::RecordPrinter;

/// Interval at which `--follow` looks for new lines.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Number of looks without a new line after which `--follow` asks whether the container still runs.
const LOOKS_PER_STATUS: u32 = 5;

/// Number of last lines of each pod that are printed by default if labels select the pods, as by
/// kubectl.
const TAIL_OF_LABELLED: u32 = 10;

/// Number of bytes from which lines are written at once.
const WRITTEN_AT_ONCE: usize = 1 << 16;

/// Arguments of `logs`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("pods").required(true).args(["pod", "selector"])))]
pub struct LogsCommand {
    /// Name of the pod, NAMESPACE/NAME, uid, or KIND/NAME of a workload, of which one pod is chosen
    #[arg(value_name = "POD")]
    pod: Option<String>,

    #[command(flatten)]
    container: ContainerArgs,

    /// Print the logs of all pods with these labels, such as app=web,tier!=cache
    #[arg(short = 'l', long, value_name = "SELECTOR", allow_hyphen_values = true)]
    selector: Option<LabelSelector>,

    /// Print new lines as they are written, until the containers end
    #[arg(short, long, visible_short_alias = 'w', visible_alias = "watch")]
    follow: bool,

    /// Print the log of the previous instance of the container, before its last restart
    #[arg(short, long)]
    previous: bool,

    /// Number of last lines to print, 0 to 4294967295 [default: all, with -l 10]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32, 0, { u32::MAX as u64 }>)]
    tail: Option<u32>,

    #[command(flatten)]
    lines: LineArgs,

    #[command(flatten)]
    at: AdminArgs,
}

/// Flags for the lines that are printed, and for what is printed before each.
#[derive(Clone, Copy, Debug, Args)]
struct LineArgs {
    /// Print only lines of the last DURATION, such as 30s or 10m, at most 24h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<BoundedDuration>,

    /// Print [pod/NAMESPACE/NAME/CONTAINER] before each line
    #[arg(long)]
    prefix: bool,

    /// Print the time of each line
    #[arg(long)]
    timestamps: bool,
}

/// The log of an instance of a container.
struct ContainerLog {
    target: TargetContainer,
    /// Id of the instance.
    id: String,
    path: PathBuf,
    reader: LogReader,
    printer: RecordPrinter,
    /// Number of looks since the last line, or since the status of the container was requested.
    looks: u32,
}

impl LogsCommand {
    /// Prints the logs of the containers. The runtime names their files, which this process reads.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let (targets, tail) = match (&self.pod, &self.selector) {
            (_, Some(selector)) => {
                let targets = self.container.find_labelled(selector, &client, Via::Upstream).await?;
                (targets, Some(self.tail.unwrap_or(TAIL_OF_LABELLED)))
            }
            (Some(pod), None) => (vec![self.container.find(pod, &client, Via::Upstream).await?], self.tail),
            (None, None) => return Err(CliError::Usage("POD or --selector must be given".to_owned())),
        };
        let mut logs = Vec::new();
        for target in targets {
            let printer = self.lines.printer(&target);
            match ContainerLog::open(target, self.previous, tail, printer).await {
                Ok(log) => logs.push(log),
                // The others have logs.
                Err(CliError::Failed(error)) if self.selector.is_some() => note(&format!("{error:#}")),
                Err(error) => return Err(error),
            }
        }
        if logs.is_empty() {
            return Err(anyhow!("none of the pods has a log").into());
        }
        loop {
            let mut running = Vec::new();
            for mut log in logs {
                match log.look().await {
                    Ok(LogState::MayGrow) => running.push(log),
                    Ok(LogState::Complete) => {}
                    Ok(LogState::Unread) => return Ok(()),
                    Err(error) if self.selector.is_some() => note(&format!("{error:#}")),
                    Err(error) => return Err(error.into()),
                }
            }
            logs = running;
            if logs.is_empty() || !self.follow {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// State of a log after its new lines were printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogState {
    /// More lines may follow.
    MayGrow,
    /// The container has ended, and all its lines were printed.
    Complete,
    /// Standard output is closed.
    Unread,
}

impl LineArgs {
    fn printer(self, target: &TargetContainer) -> RecordPrinter {
        let prefix = || format!("[pod/{}/{}] ", target.pod, target.name);
        let prefix = self.prefix.then(prefix).unwrap_or_default();
        let since = self.since.and_then(|since| Timestamp::now().checked_sub(Duration::from(since)).ok());
        RecordPrinter::new(prefix, self.timestamps, io::stdout().is_terminal(), since)
    }
}

impl ContainerLog {
    /// Opens the log of the last instance of a container, or of the instance before.
    async fn open(
        mut target: TargetContainer,
        previous: bool,
        tail: Option<u32>,
        printer: RecordPrinter,
    ) -> Result<Self, CliError> {
        let id = instance(&target, previous)?;
        let path = log_of(&mut target, &id).await?;
        let reader = LogReader::open(&path, tail).map_err(|error| unreadable(&path, &error))?;
        Ok(Self { target, id, path, reader, printer, looks: 0 })
    }

    /// Prints the lines that have been written since the last look.
    async fn look(&mut self) -> anyhow::Result<LogState> {
        Ok(match self.print_new_lines()? {
            false => LogState::Unread,
            true if self.is_complete().await? => LogState::Complete,
            true => LogState::MayGrow,
        })
    }

    /// Prints the lines that have been written since the last look. Returns `false` once standard
    /// output is closed.
    fn print_new_lines(&mut self) -> anyhow::Result<bool> {
        self.looks += 1;
        let mut text = Vec::new();
        while let Some(line) = self.reader.next_line().map_err(|error| unreadable(&self.path, &error))? {
            self.looks = 0;
            self.printer.print(&line, &mut text);
            if text.len() > WRITTEN_AT_ONCE && !print(&std::mem::take(&mut text))? {
                return Ok(false);
            }
        }
        print(&text)
    }

    /// Returns whether all lines were printed, and the container has ended and writes no more.
    async fn is_complete(&mut self) -> anyhow::Result<bool> {
        if self.looks < LOOKS_PER_STATUS {
            return Ok(false);
        }
        self.looks = 0;
        // Lines that the container wrote before its status was requested are still unread.
        let has_ended = has_ended(&mut self.target, &self.id).await;
        Ok(has_ended && !self.reader.has_more().map_err(|error| unreadable(&self.path, &error))?)
    }
}

fn unreadable(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("{}: {error}", path.display())
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
