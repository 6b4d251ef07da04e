//! `probeshim bench`

use std::collections::BTreeSet;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::pod_arg::{NamespaceArg, find_pod, owner};
use super::query::query_status;
use super::table::{Cell, Column, Table};
use crate::admin::api::{StatusContainer, StatusPod};
use crate::bench::{self, BenchReport, BenchSpec, PathResult};
use crate::config::whole_number;
use crate::socket::SocketPath;
use crate::suggest::did_you_mean;
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};
use crate::terminal::{MAX_NAME_WIDTH, harmless_name, shortened};

/// Minimum length of a prefix of an id that is matched. A shorter text is rather a name.
const MIN_ID_PREFIX: usize = 4;

/// Maximum number of containers in an error.
const MAX_NAMES: usize = 10;

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

    #[command(flatten)]
    namespace: NamespaceArg,

    /// The container: its name, or a prefix of its id
    #[arg(long, value_name = "CONTAINER")]
    container: String,

    /// Pod of the container, if several have a container with this name: its name, NAMESPACE/NAME
    /// or uid
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// Number of calls on each path, 1 to 100000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole_number::<usize, 1, 100_000>)]
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
        let status = query_status(&self.at.client()?).await?;
        let socket = |what: &str, uri: &str| {
            SocketPath::parse(uri)
                .map_err(|error| CliError::from_display(format!("the probeshim's {what} {uri:?} {error}")))
        };
        let plan = BenchSpec {
            direct: socket("upstream", &status.upstream.socket)?,
            relayed: socket("socket", &status.listen)?,
            container: find_container(
                &status.pods,
                &self.container,
                self.pod.as_deref(),
                self.namespace.namespace.as_deref(),
            )?,
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

/// Returns the id of the container with this name or prefix of its id. A prefix of an id that is
/// unknown to probeshim is returned unchanged, since the runtime may know it.
fn find_container(
    pods: &[StatusPod],
    name: &str,
    pod: Option<&str>,
    namespace: Option<&str>,
) -> Result<String, CliError> {
    let pod = pod.map(|pod| find_pod(pods, pod, namespace)).transpose()?;
    let is_selected = |candidate: &&StatusPod| match pod {
        Some(pod) => candidate.id == pod.id,
        None => namespace.is_none() || candidate.namespace.as_deref() == namespace,
    };
    let containers: Vec<(&StatusPod, &StatusContainer)> = pods
        .iter()
        .filter(is_selected)
        .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
        .filter(|(_, container)| container.state == "running")
        .collect();
    let is_it = |container: &StatusContainer| {
        container.name.as_deref() == Some(name)
            || (name.len() >= MIN_ID_PREFIX && container.id.starts_with(name))
    };
    if let Some(namespace) = namespace.filter(|_| pod.is_none() && containers.is_empty()) {
        // Other tools for benchmarks take a number of calls with -n.
        let hint = match namespace.parse::<u32>() {
            Ok(calls) => format!("; --calls {calls} sets the number of calls"),
            Err(_) => String::new(),
        };
        let shown = harmless_name(namespace);
        return Err(CliError::Usage(format!("no container runs in namespace {shown:?}{hint}")));
    }
    let found: Vec<_> = containers.iter().filter(|(_, container)| is_it(container)).collect();
    let listed = |containers: &mut dyn Iterator<Item = &(&StatusPod, &StatusContainer)>| {
        let names: BTreeSet<String> = containers
            .map(|(pod, container)| format!("{} of {}", container.name.as_deref().unwrap_or("?"), owner(pod)))
            .map(|name| harmless_name(&name))
            .collect();
        names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ")
    };
    let shown = shortened(name, MAX_NAME_WIDTH);
    match found[..] {
        [(_, container)] => Ok(container.id.clone()),
        [] if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(name.to_owned()),
        [] if containers.is_empty() => {
            Err(CliError::Usage(format!("--container {shown:?} not found: no containers are running")))
        }
        [] => {
            let names = containers.iter().filter_map(|(_, container)| container.name.as_deref());
            let hint = did_you_mean(name, names);
            let listed = listed(&mut containers.iter());
            Err(CliError::Usage(format!(
                "--container {shown:?} not found{hint}; the running containers are {listed}"
            )))
        }
        _ => {
            let listed = listed(&mut found.into_iter());
            Err(CliError::Usage(format!(
                "--container {shown:?} is ambiguous: it may be {listed}; --pod and --namespace select one"
            )))
        }
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
    let nonzero = match way.nonzero_exits {
        0 => String::new(),
        nonzero => format!("  {nonzero} of {calls} commands exited with another code than 0\n"),
    };
    let has_phases = way.phases.iter().any(|figures| ["start", "run"].contains(&figures.phase.as_str()));
    let untold = match calls.saturating_sub(way.explained) {
        _ if !has_phases => String::new(),
        0 => String::new(),
        untold => format!(
            "  {untold} calls were not matched to exec instances; start and run are those of all exec instances\n"
        ),
    };
    format!(
        "{}: {rate:.1} calls per second, {cpu} of processor time on the node per call{failed}\n{nonzero}{untold}",
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

#[cfg(test)]
mod tests {
    use super::super::snapshots::assert_screens;
    use super::*;
    use crate::bench::PhaseStats;

    #[test]
    fn a_benchmark_of_failing_commands_says_how_many_and_mentions_only_phases_that_it_shows() {
        let figures = |phase: &str| PhaseStats {
            phase: phase.to_owned(),
            count: 20,
            p50_ms: 1.5,
            p90_ms: 2.0,
            p99_ms: 2.5,
            max_ms: 3.0,
        };
        let way = |way: &str, phases: &[&str]| PathResult {
            way: way.to_owned(),
            failed: 0,
            nonzero_exits: 5,
            calls_per_second: 480.0,
            cpu_ms_per_call: 1.2,
            explained: 0,
            phases: phases.iter().map(|phase| figures(phase)).collect(),
        };
        let report = BenchReport {
            container: "c0ffee00".to_owned(),
            command: vec!["false".to_owned()],
            calls: 20,
            concurrency: 1,
            ways: vec![way("direct", &["total"]), way("relay", &["total", "start", "run"])],
        };
        assert_screens("bench", |screen| text(&report, screen));
    }

    #[test]
    fn a_benchmark_finds_its_container_by_name_or_id() {
        let pod = |name: &str, container: &str, id: &str| -> StatusPod {
            serde_json::from_value(serde_json::json!({
                "namespace": "shop", "name": name, "uid": name, "id": name, "sandbox": "ready", "ip": null,
                "source": "list", "containers": [{"name": container, "id": id, "attempt": 0,
                "state": "running", "exitCode": null, "reason": null, "source": "list"}],
            }))
            .unwrap()
        };
        let pods = [pod("web", "main", "aaaa1"), pod("api", "main", "bbbb2"), pod("db", "store", "cccc3")];
        let find =
            |name: &str, pod| find_container(&pods, name, pod, None).map_err(|error| error.to_string());
        assert_eq!(find("store", None).unwrap(), "cccc3");
        assert_eq!(find("bbbb", None).unwrap(), "bbbb2");
        assert_eq!(find("main", Some("web")).unwrap(), "aaaa1");
        assert_eq!(find("0123", None).unwrap(), "0123", "the runtime may know it");
        let ambiguous = find("main", None).unwrap_err();
        assert!(ambiguous.contains("may be main of shop/api, main of shop/web; --pod"), "{ambiguous}");
        let in_namespace =
            |namespace| find_container(&pods, "main", None, Some(namespace)).unwrap_err().to_string();
        let expected = "no container runs in namespace \"100\"; --calls 100 sets the number of calls";
        assert_eq!(in_namespace("100"), expected);
        assert_eq!(in_namespace("e2e"), "no container runs in namespace \"e2e\"");
        let unknown = find("stor", None).unwrap_err();
        assert!(unknown.contains("did you mean \"store\"?; the running containers are"), "{unknown}");
    }
}
