//! `probeshim bench`

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::table::{Cell, Column, Table};
use crate::admin::api::Status;
use crate::bench::{self, BenchReport, BenchSpec, PathResult};
use crate::config::whole_number;
use crate::socket::SocketPath;
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};

/// The measurement to run.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measure ExecSync of a container, directly and through a running probeshim in turn:
    /// percentiles by phase, and processor time
    ///
    /// The command is executed the given number of times on each path, so make sure that it can be
    /// repeated.
    Exec(BenchExec),
}

/// Arguments of `bench exec`.
#[derive(Debug, Args)]
struct BenchExec {
    #[command(flatten)]
    at: AdminArgs,

    /// Id of the container, or a prefix of it
    #[arg(long, value_name = "ID")]
    container: String,

    /// Number of calls on each path, 1 to 100000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = whole_number::<usize, 1, 100_000>)]
    calls: usize,

    /// Maximum number of calls in flight, 1 to 1000
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = whole_number::<usize, 1, 1_000>)]
    concurrency: usize,

    /// Timeout in seconds after which the runtime kills the command, or 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_number::<u32, 0, { u32::MAX as u64 }>)]
    timeout: u32,

    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,

    /// Command to execute, with its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<String>,
}

impl BenchArgs {
    /// Runs the measurement and prints its result.
    pub async fn run(self) -> Result<(), CliError> {
        let BenchCommand::Exec(exec) = self.what;
        exec.run().await
    }
}

impl BenchExec {
    async fn run(self) -> Result<(), CliError> {
        let status = self.at.client()?.status().await?;
        let status: Status = serde_json::from_slice(&status).context("the response is not a status")?;
        let socket = |what: &str, uri: &str| {
            SocketPath::parse(uri)
                .map_err(|error| CliError::from_display(format!("the probeshim's {what} {uri:?} {error}")))
        };
        let plan = BenchSpec {
            direct: socket("upstream", &status.upstream.socket)?,
            relayed: socket("socket", &status.listen)?,
            container: self.container,
            command: self.command,
            timeout: self.timeout.into(),
            calls: self.calls,
            concurrency: self.concurrency,
        };
        let report = bench::run(&plan).await.map_err(CliError::from_display)?;
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                let report = serde_json::value::to_raw_value(&report).context("the report is not JSON")?;
                print(&self.output.document(&report)?)?;
            }
            _ => {
                let screen = Screen::stdout();
                screen.print(&text(&report, screen))?;
            }
        }
        Ok(())
    }
}

fn text(report: &BenchReport, screen: Screen) -> String {
    let columns = [
        Column::text("PATH"),
        Column::text("PHASE"),
        Column::numeric("CALLS"),
        Column::numeric("P50"),
        Column::numeric("P90"),
        Column::numeric("P99"),
        Column::numeric("MAX"),
    ];
    let rows: Vec<Vec<Cell>> = report.ways.iter().flat_map(rows).collect();
    let mut text = Table::new(columns, screen).render(&rows);
    text.push('\n');
    text.extend(report.ways.iter().map(|way| summary(way, report.calls)));
    text
}

/// Returns the line with the totals of a path, and a line about calls without phases if there are
/// any.
fn summary(way: &PathResult, calls: usize) -> String {
    let (rate, cpu) = (way.calls_per_second, format::milliseconds(way.cpu_ms_per_call));
    let failed = if way.failed > 0 { format!(", {} failed", way.failed) } else { String::new() };
    let untold = match calls.saturating_sub(way.explained) {
        0 => String::new(),
        untold => format!(
            "  {untold} calls were not matched to exec instances; start and run are those of all exec instances\n"
        ),
    };
    format!(
        "{}: {rate:.1} calls per second, {cpu} of processor time on the node per call{failed}\n{untold}",
        way.way
    )
}

fn rows(way: &PathResult) -> Vec<Vec<Cell>> {
    let row = |figures: &bench::PhaseStats| {
        let times = [figures.p50_ms, figures.p90_ms, figures.p99_ms, figures.max_ms];
        [Cell::new(&way.way), Cell::new(&figures.phase), Cell::new(figures.count.to_string())]
            .into_iter()
            .chain(times.map(|time| Cell::new(format::milliseconds(time))))
            .collect()
    };
    way.phases.iter().map(row).collect()
}
