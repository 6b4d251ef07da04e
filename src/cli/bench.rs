//! `probeshim bench`

mod container_arg;
mod endpoint_arg;
mod path_report;
mod storm;
mod storm_report;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::pod_arg::NamespaceArg;
use super::query::query_status;
use crate::bench::{self, BenchSpec};
use crate::config::whole_number;
use crate::socket::SocketPath;
use crate::terminal::screen::{Screen, print};

use container_arg::find_containers;
use endpoint_arg::ContainerArg;
use storm::StormArgs;

/// Default of the maximum number of calls in flight. Calls follow each other.
const CONCURRENCY: usize = 1;

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
    /// repeated. With --storm, calls are instead offered to one or more endpoints at increasing
    /// rates, to find the rate at which each saturates. A storm takes all processor time of the
    /// node: run it only where pods may be slow.
    Exec(BenchExec),
}

/// Arguments of `bench exec`.
#[derive(Debug, Args)]
struct BenchExec {
    #[command(flatten)]
    at: AdminArgs,

    #[command(flatten)]
    namespace: NamespaceArg,

    /// The container: its name, or a prefix of its id. With --storm, the flag may be repeated, and
    /// the calls are spread over the containers; ENDPOINT=CONTAINER is one only for the endpoint of
    /// that name
    #[arg(long, value_name = "CONTAINER", required = true)]
    container: Vec<ContainerArg>,

    /// Pod of the container, if several have a container with this name: its name, NAMESPACE/NAME
    /// or uid
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// Number of calls on each path, 1 to 100000
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "storm", value_parser = whole_number::<usize, 1, 100_000>)]
    calls: usize,

    /// Maximum number of calls in flight, 1 to 1000. A storm does not send a call that would
    /// exceed it [default: 1, with --storm 200]
    #[arg(short, long, value_name = "N", value_parser = whole_number::<usize, 1, 1_000>)]
    concurrency: Option<usize>,

    /// Timeout in seconds after which the runtime kills the command, or 0 for none, which --storm
    /// does not allow [default: 0, with --storm 1]
    #[arg(long, value_name = "SECONDS", value_parser = whole_number::<u32, 0, { u32::MAX as u64 }>)]
    timeout: Option<u32>,

    #[command(flatten)]
    storm: StormArgs,

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
        let Self { at, namespace, container, pod, calls, concurrency, timeout, storm, output, command } =
            self;
        storm.validate(&container, timeout)?;
        let status = query_status(&at.client()?).await?;
        let namespace = namespace.namespace.as_deref();
        let find = |names: &[String]| find_containers(&status.pods, names, pod.as_deref(), namespace);
        let socket = |what: &str, uri: &str| {
            SocketPath::parse(uri)
                .map_err(|error| CliError::from_display(format!("the probeshim's {what} {uri:?} {error}")))
        };
        let relayed = socket("socket", &status.listen)?;
        if storm.storm {
            let endpoints = storm.endpoints(relayed, &container, find)?;
            let report = storm.run(endpoints, command, timeout, concurrency).await?;
            return print_report(output, &report, |screen| storm_report::text(&report, screen));
        }
        let mut containers = find(&[container[0].container.clone()])?;
        let plan = BenchSpec {
            direct: socket("upstream", &status.upstream.socket)?,
            relayed,
            container: containers.remove(0),
            command,
            timeout: timeout.unwrap_or_default().into(),
            calls,
            concurrency: concurrency.unwrap_or(CONCURRENCY),
        };
        let report = bench::run(&plan).await.map_err(CliError::from_display)?;
        print_report(output, &report, |screen| path_report::text(&report, screen))
    }
}

/// Prints a report as a document, or as the text that `text` returns.
fn print_report(
    output: OutputFormat,
    report: &impl Serialize,
    text: impl FnOnce(Screen) -> String,
) -> Result<(), CliError> {
    match output {
        OutputFormat::Json | OutputFormat::Yaml => {
            let report = serde_json::value::to_raw_value(report).context("the report is not JSON")?;
            print(&output.document(&report)?)?;
        }
        _ => {
            let screen = Screen::stdout();
            screen.print(&text(screen))?;
        }
    }
    Ok(())
}
