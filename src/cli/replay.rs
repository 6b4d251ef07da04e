//! `probeshim replay`

mod text;

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::CliError;
use super::admin_args::OutputFormat;
use crate::replay::{CaptureFile, ReadError, ReplayReport, ReplaySpec, run_replay};
use crate::socket::SocketPath;
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct ReplayCommand {
    /// File that `probeshim capture` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Socket of the runtime to which the calls are sent, such as
    /// unix:///run/containerd/containerd.sock, or of a probeshim in front of it
    #[arg(long, value_name = "URI", allow_hyphen_values = true)]
    upstream: SocketPath,

    /// Execute the commands of recorded hooks (postStart, preStop) again, too
    #[arg(long)]
    hooks: bool,

    /// Factor by which the distances of the calls are shortened, 0.01 to 1000. A recorded distance
    /// of more than 60 s counts as 60 s
    #[arg(long, value_name = "FACTOR", default_value = "1", allow_hyphen_values = true, value_parser = speed)]
    speed: f64,

    /// End with exit code 1 if a code or an exit code differs
    #[arg(long)]
    fail_on_difference: bool,

    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl ReplayCommand {
    /// Reads the file, sends its calls and prints the comparison.
    pub async fn run(self) -> Result<(), CliError> {
        let recording = CaptureFile::read(&self.file).map_err(|error| match error {
            ReadError::Invalid(_) | ReadError::System { .. } => CliError::Usage(error.to_string()),
        })?;
        let spec = ReplaySpec { upstream: self.upstream, speed: self.speed, hooks: self.hooks };
        let report = run_replay(&recording, &spec).await.map_err(CliError::from_display)?;
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                let json = serde_json::value::to_raw_value(&report).context("the report is not JSON")?;
                print(&self.output.document(&json)?)?;
            }
            _ => {
                let screen = Screen::stdout();
                screen.print(&text::text(&report, screen))?;
            }
        }
        if report.sent == 0 && report.calls > 0 {
            return Err(anyhow!("no call of the capture could be sent").into());
        }
        match report.differences.len() {
            count if count > 0 && self.fail_on_difference => {
                Err(anyhow!("{} ended otherwise than recorded", format::counted(count, "call")).into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the tables of a replay for a terminal, for a fuzz target.
pub(crate) fn replay_text(report: &ReplayReport) -> String {
    text::text(report, Screen::narrow())
}

/// Parses the factor of the speed.
fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=1000.0).contains(speed));
    speed.ok_or_else(|| "must be a number from 0.01 to 1000, such as 2 or 0.5".to_owned())
}
