//! `probeshim status`

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::describe::render;
use super::pod_arg::{find_pod, owner};
use super::table::{Cell, Column, Table};
use crate::admin::{Client, api};
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Show only this pod: NAME or NAMESPACE/NAME
    #[arg(value_name = "POD")]
    pod: Option<String>,

    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl StatusCommand {
    /// Queries the status and prints it.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let answer = client.status().await?;
        if let Some(name) = &self.pod {
            print(&describe_pod(&client, &answer, name, self.output).await?)?;
            return Ok(());
        }
        let not_one = "the response is not a status";
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                print(&self.output.document(serde_json::from_slice(&answer).context(not_one)?)?)?;
            }
            _ => {
                let screen = Screen::stdout();
                screen.print(&table(&serde_json::from_slice(&answer).context(not_one)?, screen))?;
            }
        }
        Ok(())
    }
}

/// Returns the description of one pod.
async fn describe_pod(
    client: &Client,
    answer: &[u8],
    name: &str,
    output: OutputFormat,
) -> Result<String, CliError> {
    let status: api::Status = serde_json::from_slice(answer).context("the response is not a status")?;
    let pod = find_pod(&status.pods, name, None)?;
    if pod.status.is_none() {
        return Ok(match output {
            OutputFormat::Json | OutputFormat::Yaml => {
                output.document(&to_raw_value(pod).context("the pod cannot be written as JSON")?)?
            }
            _ => tables(std::slice::from_ref(pod), Screen::stdout()).trim_start().to_owned(),
        });
    }
    let list: Value =
        serde_json::from_slice(&client.pods().await?).context("the response is not a list of pods")?;
    let is_it = |item: &&Value| {
        let text = |field: &str| item["metadata"][field].as_str().map(str::to_owned);
        (text("namespace"), text("name")) == (pod.namespace.clone(), pod.name.clone())
    };
    let items = list["items"].as_array().into_iter().flatten();
    let item = items.into_iter().find(is_it).context("the pod was removed meanwhile")?;
    if matches!(output, OutputFormat::Json | OutputFormat::Yaml) {
        return output.document(&to_raw_value(item).context("the pod cannot be written as JSON")?);
    }
    let events = client.events(&api::EventsQuery { since_ms: None }).await?;
    let events: Vec<api::Event> =
        serde_json::from_slice(&events).context("the response is not a list of events")?;
    let of_it = |event: &&api::Event| event.namespace == pod.namespace && event.pod == pod.name;
    let events: Vec<&api::Event> = events.iter().filter(of_it).collect();
    let item = Pod::deserialize(item).context("the response is not a list of pods")?;
    Ok(render(item, pod, &events, Timestamp::now(), Screen::stdout()))
}

fn table(status: &api::Status, screen: Screen) -> String {
    let rows = rows(status);
    let mut table = Table::new(["", ""].map(Column::text), screen);
    table.fit(&rows);
    let mut text: String = rows.iter().map(|row| table.line(row) + "\n").collect();
    text += &tables(&status.pods, screen);
    if !status.stuck.is_empty() {
        text.push('\n');
        let rows: Vec<Vec<Cell>> = status.stuck.iter().map(stuck_row).collect();
        text += &Table::new(["STUCK", "OBJECT", "MESSAGE"].map(Column::text), screen).render(&rows);
    }
    text
}

/// Returns the tables of managed pods, of all pods and containers, and of probes.
fn tables(pods: &[api::StatusPod], screen: Screen) -> String {
    let mut text = String::new();
    let played: Vec<Vec<Cell>> = pods.iter().filter_map(played_row).collect();
    if !played.is_empty() {
        text.push('\n');
        text += &Table::new(played_columns(), screen).render(&played);
    }
    if !pods.is_empty() {
        text.push('\n');
        let rows: Vec<Vec<Cell>> = pods.iter().flat_map(pod_rows).collect();
        text += &Table::new(pod_columns(), screen).render(&rows);
    }
    let probes: Vec<Vec<Cell>> = pods.iter().flat_map(probe_rows).collect();
    if !probes.is_empty() {
        text.push('\n');
        text += &Table::new(probe_columns(), screen).render(&probes);
    }
    text
}

fn played_columns() -> [Column; 6] {
    [
        Column::text("NAME"),
        Column::numeric("READY"),
        Column::text("STATUS"),
        Column::numeric("RESTARTS"),
        Column::numeric("AGE"),
        Column::text("IP").optional(),
    ]
}

/// Returns the row of a managed pod in kubectl's format; `None` for other pods.
fn played_row(pod: &api::StatusPod) -> Option<Vec<Cell>> {
    let word = pod.status.as_ref()?;
    let (ready, all) = (pod.ready_containers.unwrap_or(0), pod.total_containers.unwrap_or(0));
    let ago =
        pod.restarted.as_deref().map(|ended| format!(" ({} ago)", format::age(ended, Timestamp::now())));
    let is_well = matches!(word.as_str(), "Running" | "Completed" | "Succeeded");
    let style = if is_well { Style::new() } else { AnsiColor::Yellow.on_default() };
    let age = pod.started.as_deref().map(|started| format::age(started, Timestamp::now()));
    let removed = if pod.removed.is_some() { " (removed)" } else { "" };
    Some(vec![
        Cell::new(owner(pod)),
        Cell::new(format!("{ready}/{all}")),
        Cell::styled(format!("{word}{removed}"), style),
        Cell::new(format!("{}{}", pod.restarts.unwrap_or(0), ago.unwrap_or_default())),
        Cell::new(age.unwrap_or_default()),
        Cell::new(pod.ip.as_deref().unwrap_or_default()),
    ])
}

fn pod_columns() -> [Column; 6] {
    [
        Column::text("POD"),
        Column::text("SANDBOX"),
        Column::text("IP").optional(),
        Column::text("CONTAINER"),
        Column::numeric("ATTEMPT").optional(),
        Column::text("STATE"),
    ]
}

/// Returns one row per container of a pod, or one row for a pod without containers.
fn pod_rows(pod: &api::StatusPod) -> Vec<Vec<Cell>> {
    let name = match (&pod.namespace, &pod.name) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        _ => pod.id.clone(),
    };
    let style = |is_well: bool| if is_well { Style::new() } else { AnsiColor::Yellow.on_default() };
    let of_pod = || {
        vec![
            Cell::new(&name),
            Cell::styled(&pod.sandbox, style(pod.sandbox == "ready")),
            Cell::new(pod.ip.as_deref().unwrap_or_default()),
        ]
    };
    if pod.containers.is_empty() {
        return vec![of_pod()];
    }
    let row = |container: &api::StatusContainer| {
        let state = match (&container.exit_code, &container.reason) {
            (Some(code), Some(reason)) => format!("{} {code} ({reason})", container.state),
            (Some(code), None) => format!("{} {code}", container.state),
            (None, Some(reason)) => format!("{} ({reason})", container.state),
            _ => container.state.clone(),
        };
        let state = match &container.not_restartable {
            Some(reason) => format!("{state}, not restartable: {reason}"),
            None => state,
        };
        let mut row = of_pod();
        row.extend([
            Cell::new(container.name.as_deref().unwrap_or(&container.id)),
            Cell::new(container.attempt.map(|attempt| attempt.to_string()).unwrap_or_default()),
            Cell::styled(state, style(container.state == "running")),
        ]);
        row
    };
    pod.containers.iter().map(row).collect()
}

fn probe_columns() -> [Column; 9] {
    [
        Column::text("PROBE"),
        Column::text("OBJECT"),
        Column::text("READY").optional(),
        Column::text("HANDLER").optional(),
        Column::text("SOURCE").optional(),
        Column::text("RESULT"),
        Column::text("RUN"),
        Column::numeric("WOULD HAVE KILLED").optional(),
        Column::numeric("KILLED"),
    ]
}

/// Returns one row per probe of a pod.
fn probe_rows(pod: &api::StatusPod) -> Vec<Vec<Cell>> {
    let owner = owner(pod);
    let yellow = |is_yellow: bool| if is_yellow { AnsiColor::Yellow.on_default() } else { Style::new() };
    let row = |container: &api::StatusContainer, probe: &api::StatusProbe| {
        let name = container.name.as_deref().unwrap_or(&container.id);
        let is_ready = container.ready == Some(true);
        let run = match (&probe.result, probe.on_hold) {
            (_, true) => "on hold".to_owned(),
            (Some(result), _) => format!("{} of {} {result}", probe.run, probe.threshold),
            (None, _) => "none yet".to_owned(),
        };
        let verdict = probe.verdict.as_deref().unwrap_or("none yet");
        vec![
            Cell::new(&probe.r#type),
            Cell::new(format!("{owner} {name}")),
            Cell::styled(if is_ready { "yes" } else { "no" }, yellow(!is_ready)),
            Cell::new(&probe.handler),
            Cell::new(&probe.source),
            Cell::styled(verdict, yellow(verdict == "failure")),
            Cell::new(run),
            Cell::styled(probe.would_have_killed.to_string(), yellow(probe.would_have_killed > 0)),
            Cell::styled(probe.killed.to_string(), yellow(probe.killed > 0)),
        ]
    };
    let probes = pod.containers.iter().flat_map(|of| of.probes.iter().map(move |probe| (of, probe)));
    probes.map(|(container, probe)| row(container, probe)).collect()
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
    ("mode", status.mode.clone(), Style::new())
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

fn rows(status: &api::Status) -> Vec<Vec<Cell>> {
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
    let up = format::age(&status.started, Timestamp::now());
    [
        ("probeshim", format!("{}, pid {}, up {up}", status.version, status.pid), Style::new()),
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
    .chain(state)
    .chain(kills(status))
    .chain(agreement(status))
    .chain(panics)
    .map(|(name, value, style)| vec![Cell::styled(name, Style::new().bold()), Cell::styled(value, style)])
    .collect()
}
