//! `probeshim status`

mod policies;

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::pod_arg::owner;
use super::pod_summary::{PodSummary, by_pod, newest_containers};
use super::probe_result::{OFF, ProbeOfPod, probes};
use super::table::{Cell, Column, Table};
use super::watch::WATCH_INTERVAL;
use crate::admin::Client;
use crate::admin::api::{self, StatusPod};
use crate::terminal::screen::Screen;
use crate::terminal::{format, harmless_name};

/// Maximum number of warnings about pods and probes that are shown.
const MAX_WARNINGS: usize = 10;

/// Minimum width of messages. In a narrower column, they are shown below their rows.
const MIN_MESSAGE_WIDTH: usize = 32;

/// Maximum duration of a check. It is the default timeout of a probe.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Sequence that clears a terminal before the status is shown again.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Show the status again every second
    #[arg(short, long, visible_alias = "follow")]
    watch: bool,

    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,

    /// Only check probeshim, within a second, for a probe of its container: exit code 0, or 1 with
    /// the reason
    #[arg(long, value_name = "CHECK", value_enum, conflicts_with_all = ["watch", "output"])]
    check: Option<Check>,

    /// A pod. It is refused with the command that describes it
    #[arg(value_name = "POD", hide = true)]
    pod: Option<String>,
}

/// Check of a running probeshim. `--help` prints the comments of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Check {
    /// probeshim answers
    Live,
    /// probeshim and the runtime answer
    Ready,
}

impl StatusCommand {
    /// Queries the status and prints it.
    pub async fn run(self) -> Result<(), CliError> {
        if let Some(pod) = &self.pod {
            let pod = harmless_name(pod);
            return Err(CliError::Usage(format!(
                "`status` shows probeshim itself and takes no POD {pod:?}\nhint: `probeshim describe {pod}` describes the pod, \
                 `probeshim pods {pod}` shows its status"
            )));
        }
        let client = self.at.client()?;
        if let Some(check) = self.check {
            return check.run(&client).await;
        }
        let screen = Screen::stdout();
        let mut last = String::new();
        loop {
            let text = shown(&client.status().await?, self.output, screen)?;
            let clear = if self.watch && screen.width.is_some() { CLEAR } else { "" };
            // Without a terminal, only changes are worth a repetition.
            let is_open = text == last || screen.print(&format!("{clear}{text}"))?;
            if !self.watch || !is_open {
                return Ok(());
            }
            last = text;
            sleep(WATCH_INTERVAL).await;
        }
    }
}

impl Check {
    async fn run(self, client: &Client) -> Result<(), CliError> {
        let checked = async {
            match self {
                Self::Live => client.check_live().await,
                Self::Ready => client.check_ready().await,
            }
        };
        match timeout(CHECK_TIMEOUT, checked).await {
            Ok(Ok(())) => Screen::stdout().print("ok\n").map(drop).map_err(CliError::from),
            Ok(Err(error)) => Err(CliError::from_display(error)),
            Err(_) => {
                let who = match self {
                    Self::Live => "probeshim",
                    Self::Ready => "the runtime through probeshim",
                };
                Err(anyhow!("no answer of {who} within {CHECK_TIMEOUT:?}").into())
            }
        }
    }
}

/// Returns a status in a format.
fn shown(answer: &[u8], output: OutputFormat, screen: Screen) -> Result<String, CliError> {
    let not_one = "the response is not a status";
    Ok(match output {
        OutputFormat::Json | OutputFormat::Yaml => {
            output.document(serde_json::from_slice(answer).context(not_one)?)?
        }
        _ => table(&serde_json::from_slice(answer).context(not_one)?, Timestamp::now(), screen),
    })
}

fn table(status: &api::Status, now: Timestamp, screen: Screen) -> String {
    let rows = rows(status, now);
    let mut table = Table::new(["", ""].map(Column::text), screen);
    table.fit(&rows);
    let mut text: String = rows.iter().map(|row| table.line(row) + "\n").collect();
    let warnings = warnings(status, now);
    if !warnings.is_empty() {
        let more = warnings.len().saturating_sub(MAX_WARNINGS);
        let rows: Vec<Vec<Cell>> = warnings.into_iter().take(MAX_WARNINGS).map(Warning::row).collect();
        text.push('\n');
        text += &Table::new(["WARNINGS", "MESSAGE"].map(Column::text), screen)
            .render_wrapped(&rows, MIN_MESSAGE_WIDTH);
        if more > 0 {
            let _ = writeln!(text, "and {more} more; see `probeshim pods` and `probeshim probes`");
        }
    }
    if !status.stuck.is_empty() {
        text.push('\n');
        let rows: Vec<Vec<Cell>> = status.stuck.iter().map(stuck_row).collect();
        text += &Table::new(["STUCK", "OBJECT", "MESSAGE"].map(Column::text), screen)
            .render_wrapped(&rows, MIN_MESSAGE_WIDTH);
    }
    text
}

/// A pod or probe that needs attention.
struct Warning {
    object: String,
    message: String,
}

impl Warning {
    fn row(self) -> Vec<Cell> {
        vec![Cell::styled(self.object, AnsiColor::Yellow.on_default()), Cell::new(self.message)]
    }
}

/// Returns the pods and probes that need attention.
fn warnings(status: &api::Status, now: Timestamp) -> Vec<Warning> {
    let sandboxes: Vec<&StatusPod> = status.pods.iter().collect();
    let mut warnings = Vec::new();
    for pod in by_pod(&sandboxes) {
        let Some(summary) = PodSummary::new(&pod, now) else { continue };
        let object = pod.last().map(|pod| owner(pod)).unwrap_or_default();
        if summary.is_unwell() {
            warnings.push(Warning { object: object.clone(), message: summary.status });
        }
        for container in newest_containers(&pod) {
            if let Some(reason) = &container.not_restartable {
                let name = container.name.as_ref().unwrap_or(&container.id);
                let message = format!("container {name} is not restartable: {reason}");
                warnings.push(Warning { object: object.clone(), message });
            }
        }
        for probe in probes(&pod).into_iter().filter(|probe| probe.container.state == "running") {
            let result = probe.result(&status.mode, now);
            if !result.is_well {
                let name = probe.container.name.as_ref().unwrap_or(&probe.container.id);
                let message = format!("{} probe of {name} {}", probe.probe.r#type, result.text);
                warnings.push(Warning { object: object.clone(), message });
            }
        }
    }
    warnings
}

/// Returns the rows with the numbers of pods and probes, and of those that need attention.
pub(super) fn counts(status: &api::Status, now: Timestamp) -> [(&'static str, String, Style); 2] {
    let sandboxes: Vec<&StatusPod> = status.pods.iter().collect();
    let pods = by_pod(&sandboxes);
    let summaries: Vec<PodSummary> = pods.iter().filter_map(|pod| PodSummary::new(pod, now)).collect();
    let unwell_pods = summaries.iter().filter(|summary| summary.is_unwell()).count();
    let probes: Vec<ProbeOfPod<'_>> = pods.iter().flat_map(|pod| probes(pod)).collect();
    let unwell_probes = probes.iter().filter(|probe| !probe.result(&status.mode, now).is_well).count();
    let is_off = status.mode == OFF;
    let row = |name: &'static str, all: usize, unwell: usize| {
        if unwell == 0 {
            let off = match all {
                _ if !is_off || name != "probes" => "",
                0 => " of probeshim (mode off); see `probeshim probes` for those of clients",
                _ => ", not probed (mode off)",
            };
            return (name, format!("{all}{off}"), Style::new());
        }
        let text = format!("{all}, {unwell} unwell; see `probeshim {name}`");
        (name, text, AnsiColor::Yellow.on_default())
    };
    [row("pods", summaries.len(), unwell_pods), row("probes", probes.len(), unwell_probes)]
}

fn stuck_row(stuck: &api::Stuck) -> Vec<Cell> {
    let pod = stuck.namespace.iter().chain(&stuck.pod).cloned().collect::<Vec<_>>().join("/");
    let object: Vec<String> =
        Some(pod).filter(|pod| !pod.is_empty()).into_iter().chain(stuck.container.clone()).collect();
    vec![
        Cell::styled(&stuck.kind, AnsiColor::Yellow.on_default()),
        Cell::new(object.join(" ")),
        Cell::new(&stuck.message),
    ]
}

/// Returns the row of the enforcement mode, and of a pause because of a kubelet.
fn mode(status: &api::Status) -> (&'static str, String, Style) {
    if status.paused {
        let paused = format!("{}, paused: a kubelet uses the runtime", status.mode);
        return ("mode", paused, AnsiColor::Red.on_default());
    }
    // Without a prober, which has these totals, nothing was ever probed.
    let effect = match status.mode.as_str() {
        OFF if status.agreement.is_some() => ": probes do not run, and nothing is killed",
        "dry-run" => ": probes run, and nothing is killed",
        _ => "",
    };
    ("mode", format!("{}{effect}", status.mode), Style::new())
}

/// Returns the row of recent kills; `None` unless the mode is `kill`.
fn kills(status: &api::Status) -> Option<(&'static str, String, Style)> {
    let kills = status.kills.as_ref().filter(|_| status.mode == "kill")?;
    let most = match (kills.limit, kills.within_ms) {
        (Some(limit), Some(within)) => {
            let within = format::duration(Duration::from_secs_f64(within / 1e3));
            format!("{} of {limit} within {within}", kills.recent)
        }
        _ => "any number".to_owned(),
    };
    let style = if kills.rate_limited { AnsiColor::Red.on_default() } else { Style::new() };
    Some(("kills", most + if kills.rate_limited { "; rate-limited" } else { "" }, style))
}

/// Returns the row of the agreement with the kubelet's kills; `None` until the first kill.
fn agreement(status: &api::Status) -> Option<(&'static str, String, Style)> {
    let api::Agreement { predicted, unpredicted, not_observed } = status.agreement.clone()?;
    let is_any = predicted + unpredicted + not_observed > 0;
    let style = if unpredicted + not_observed > 0 { AnsiColor::Yellow.on_default() } else { Style::new() };
    let text = format!(
        "kills by the kubelet: {predicted} predicted, {unpredicted} unpredicted; {not_observed} predicted but not observed"
    );
    is_any.then_some(("agreement", text, style))
}

/// Returns the rows of the sources of probe names, and of containers without names.
fn names(names: &api::ProbeNames) -> Vec<(&'static str, String, Style)> {
    let yellow = AnsiColor::Yellow.on_default();
    let has_problem = names.sources.iter().any(|source| source.problem.is_some());
    let style = if has_problem { yellow } else { Style::new() };
    let sources = names.describe_sources().map(|sources| ("names", sources, style));
    let missing = names.describe_missing().map(|missing| ("", missing, yellow));
    sources.into_iter().chain(missing).collect()
}

fn rows(status: &api::Status, now: Timestamp) -> Vec<Vec<Cell>> {
    let upstream = &status.upstream;
    let (ready, style) = match &upstream.error {
        None => ("yes".to_owned(), AnsiColor::Green.on_default()),
        Some(error) => (format!("no: {error}"), AnsiColor::Red.on_default()),
    };
    let runtime = match (&upstream.runtime, &upstream.version) {
        (Some(runtime), Some(version)) => format!("{runtime} {version}"),
        _ => "unknown".to_owned(),
    };
    let dropped = if status.calls.dropped > 0 { AnsiColor::Yellow.on_default() } else { Style::new() };
    let (recorded, style_of_record) = match &status.record {
        None => ("off".to_owned(), Style::new()),
        Some(api::DirStatus { dir, failure: None }) => (dir.clone(), Style::new()),
        Some(api::DirStatus { failure: Some(why), .. }) => {
            (format!("no: {why}"), AnsiColor::Yellow.on_default())
        }
    };
    let state = status.state.as_ref().map(|state| match &state.failure {
        None => ("state", state.dir.clone(), Style::new()),
        Some(why) => {
            let text = format!("{}, not written: {why}", state.dir);
            ("state", text, AnsiColor::Yellow.on_default())
        }
    });
    let panics = (status.panics > 0).then(|| {
        (
            "panics",
            format!("{} in the observation of calls; see the log", status.panics),
            AnsiColor::Red.on_default(),
        )
    });
    let api_failures = status
        .api_failures
        .iter()
        .map(|failure| ("not served", failure.clone(), AnsiColor::Yellow.on_default()));
    let metrics = status.metrics.clone().map(|metrics| ("metrics", metrics, Style::new()));
    let up = format::age(&status.started, now);
    [
        ("probeshim", format!("{}, pid {}, up {up}", status.full_version(), status.pid), Style::new()),
        mode(status),
        ("listen", status.listen.clone(), Style::new()),
        ("http", status.http.clone().unwrap_or_else(|| "off".to_owned()), Style::new()),
        ("upstream", upstream.socket.clone(), Style::new()),
        ("runtime", runtime, Style::new()),
        ("ready", ready, style),
        (
            "connections",
            format!("{} open, {} since the start", status.connections.open, status.connections.total),
            Style::new(),
        ),
        ("recorded", recorded, style_of_record),
        (
            "calls",
            format!(
                "{} in flight, {} observed, {} kept, {} dropped",
                status.calls.in_flight, status.calls.observed, status.calls.kept, status.calls.dropped
            ),
            dropped,
        ),
    ]
    .into_iter()
    .chain(counts(status, now))
    .chain(names(&status.probe_names))
    .chain(metrics)
    .chain(api_failures)
    .chain(state)
    .chain(kills(status))
    .chain(agreement(status))
    .chain(policies::rows(status, now))
    .chain(panics)
    .map(|(name, value, style)| vec![Cell::styled(name, Style::new().bold()), Cell::styled(value, style)])
    .collect()
}

#[cfg(test)]
mod tests;
