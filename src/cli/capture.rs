//! `probeshim capture`

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Deserialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CliError;
use super::admin_args::AdminArgs;
use super::pod_arg::NamespaceArg;
use super::stderr::note;
use crate::admin::Followed;
use crate::admin::api::CaptureQuery;
use crate::capture::{CaptureEnd, CaptureEndReason, CaptureHeader, CaptureLine};
use crate::config::{BoundedDuration, ByteSize};
use crate::history::MethodArg;
use crate::terminal::format;
use crate::terminal::screen::print;

/// Number of bytes of a file that are reserved for its last line.
const END_BYTES: u64 = 256;

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct CaptureCommand {
    #[command(flatten)]
    admin: AdminArgs,

    #[command(flatten)]
    namespace: NamespaceArg,

    /// File to write, readable only by its owner; - writes to standard output
    #[arg(id = "file", short = 'o', long = "output", value_name = "FILE", required = true)]
    file: PathBuf,

    /// Duration of the capture, 1s to 24h. Ctrl-C ends it earlier
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    lasts: BoundedDuration<1>,

    /// Maximum size of the capture, at which it ends
    #[arg(long, value_name = "SIZE", default_value = "256MiB", allow_hyphen_values = true)]
    max_bytes: ByteSize,

    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,

    /// Remove arguments of commands too. Calls of which they are removed cannot be replayed
    #[arg(long)]
    redact_commands: bool,

    /// Capture only calls of this method, such as ExecSync
    #[arg(long, value_name = "METHOD")]
    method: Option<MethodArg>,

    /// Capture only calls about this pod: its name, NAMESPACE/NAME, its uid, or a prefix of its
    /// sandbox's id
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// Capture only calls about this container: its name, or a prefix of its id
    #[arg(long, value_name = "CONTAINER")]
    container: Option<String>,

    /// Capture only calls of this client: the name of its program, such as kubelet, or its pid
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
}

/// The destination of a capture.
enum CaptureOutput {
    Stdout,
    File(File, PathBuf),
}

/// The file or stream that is being written.
struct CaptureWriter {
    output: CaptureOutput,
    max_bytes: u64,
    bytes: u64,
    calls: u64,
    missed: u64,
}

/// The signals that end a capture: SIGINT and SIGTERM.
struct StopSignals([Signal; 2]);

/// A line whose content the command needs.
#[derive(Deserialize)]
#[serde(untagged)]
enum ControlLine {
    Missed { missed: u64 },
    End { end: CaptureEnd },
}

impl CaptureCommand {
    /// Captures calls until the end of the duration or a signal.
    pub async fn run(self) -> Result<(), CliError> {
        let is_stdout = self.file == Path::new("-");
        if !is_stdout {
            check(&self.file, self.force)?;
        }
        let query = CaptureQuery {
            for_ms: u64::try_from(Duration::from(self.lasts).as_millis()).unwrap_or(u64::MAX),
            redact_commands: self.redact_commands,
            method: self.method.map(|method| method.to_string()),
            namespace: self.namespace.namespace,
            pod: self.pod,
            container: self.container,
            peer: self.peer,
        };
        let client = self.admin.client()?;
        let mut stop = StopSignals::new()?;
        let mut lines = client.capture(&query).await?;
        let header = lines.line().await.ok_or_else(|| anyhow!("probeshim has ended"))?;
        serde_json::from_slice::<CaptureHeader>(&header).context("the response is not a capture")?;
        let output = if is_stdout {
            CaptureOutput::Stdout
        } else {
            CaptureOutput::File(create(&self.file, self.force)?, self.file)
        };
        let mut writer = CaptureWriter { output, max_bytes: self.max_bytes.0, bytes: 0, calls: 0, missed: 0 };
        let is_open = writer.write(&header)?;
        note("capturing; Ctrl-C ends the capture and keeps its calls");
        let Some(end) = (if is_open { writer.copy(&mut lines, &mut stop).await? } else { None }) else {
            return Ok(());
        };
        writer.finish(&end)
    }
}

impl StopSignals {
    fn new() -> Result<Self, CliError> {
        let signal = |kind| signal(kind).context("cannot wait for signals");
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    async fn received(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

impl CaptureWriter {
    /// Writes lines until the end of the capture. Returns `None` if standard output is closed.
    async fn copy(
        &mut self,
        lines: &mut Followed,
        stop: &mut StopSignals,
    ) -> Result<Option<CaptureEnd>, CliError> {
        loop {
            let line = tokio::select! {
                line = lines.line() => line,
                () = stop.received() => return Ok(Some(self.end(CaptureEndReason::Interrupted))),
            };
            let Some(line) = line else { return Ok(Some(self.end(CaptureEndReason::ProbeshimEnded))) };
            // Only these short lines begin so: a call begins with its id.
            let is_control = line.starts_with(b"{\"missed\"") || line.starts_with(b"{\"end\"");
            let control = is_control.then(|| serde_json::from_slice(&line)).transpose();
            match control.context("the response has a line that is not a call")? {
                Some(ControlLine::End { end }) => return Ok(Some(end)),
                Some(ControlLine::Missed { missed }) => self.missed += missed,
                None if self.bytes + line.len() as u64 + END_BYTES > self.max_bytes => {
                    return Ok(Some(self.end(CaptureEndReason::MaxBytes)));
                }
                None => self.calls += 1,
            }
            if !self.write(&line)? {
                return Ok(None);
            }
        }
    }

    fn end(&self, reason: CaptureEndReason) -> CaptureEnd {
        CaptureEnd { reason, calls: self.calls, missed: self.missed, unobserved: None }
    }

    /// Writes a line. Returns false if standard output is closed.
    fn write(&mut self, line: &[u8]) -> Result<bool, CliError> {
        self.bytes += line.len() as u64 + 1;
        match &mut self.output {
            CaptureOutput::Stdout => {
                let line = str::from_utf8(line).context("the response has a line that is not a call")?;
                Ok(print(&(format::harmless_json(line) + "\n"))?)
            }
            CaptureOutput::File(file, path) => {
                let written = file.write_all(&[line, b"\n"].concat());
                written.with_context(|| format!("cannot write {}", path.display()))?;
                Ok(true)
            }
        }
    }

    /// Writes the last line, and reports the result.
    fn finish(mut self, end: &CaptureEnd) -> Result<(), CliError> {
        let line = CaptureLine::End { end: end.clone() };
        self.write(&serde_json::to_vec(&line).context("the end is not JSON")?)?;
        let result = match &self.output {
            CaptureOutput::Stdout => format!("{} captured", format::counted(end.calls, "call")),
            CaptureOutput::File(file, path) => {
                file.sync_all().with_context(|| format!("cannot write {}", path.display()))?;
                format!(
                    "{} captured in {}, {}",
                    format::counted(end.calls, "call"),
                    path.display(),
                    format::size(self.bytes)
                )
            }
        };
        note(&result);
        for (count, reason) in [
            (end.missed, "they arrived too fast for the capture"),
            (end.unobserved.unwrap_or(0), "probeshim forwarded them without observing them"),
        ] {
            if count > 0 {
                note(&format!("{} missing: {reason}", format::counted(count, "call")));
            }
        }
        match end.reason {
            CaptureEndReason::Duration | CaptureEndReason::Interrupted => Ok(()),
            CaptureEndReason::MaxBytes => {
                note("the capture ended at its maximum size; see --max-bytes and the filters");
                Ok(())
            }
            CaptureEndReason::ProbeshimEnded => {
                Err(anyhow!("probeshim ended during the capture, which has the calls until then").into())
            }
        }
    }
}

/// Returns an error if a file exists that must not be replaced.
fn check(file: &Path, force: bool) -> Result<(), CliError> {
    match fs::symlink_metadata(file) {
        Ok(known) if known.is_dir() => Err(CliError::Usage(format!("{} is a directory", file.display()))),
        Ok(_) if !force => {
            Err(CliError::Usage(format!("{} exists already; --force replaces it", file.display())))
        }
        _ => Ok(()),
    }
}

/// Creates a file that only its owner can read.
fn create(file: &Path, force: bool) -> Result<File, CliError> {
    check(file, force)?;
    let context = || format!("cannot create {}", file.display());
    // A file that exists may be readable by others.
    if force && fs::symlink_metadata(file).is_ok() {
        fs::remove_file(file).with_context(context)?;
    }
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    Ok(created.with_context(context)?)
}
