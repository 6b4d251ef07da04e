//! `probeshim calls`

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use serde_json::value::RawValue;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat, milliseconds};
use super::follow::FollowItem;
use super::table::{Cell, Column, Table};
use crate::admin::Client;
use crate::admin::api::{Call, CallsQuery, LogLine};
use crate::config::{BoundedDuration, whole_number};
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};

/// Default number of past calls that `--follow` shows first.
const FOLLOW_BACKLOG: usize = 10;

/// Number of characters of an id that are shown, as in crictl.
const SHORT_ID: usize = 13;

/// Arguments of `calls`.
#[derive(Debug, Args)]
pub struct CallsCommand {
    #[command(flatten)]
    admin: AdminArgs,

    /// Show only calls of this method: a name, case-insensitive, such as ExecSync, or the path of a
    /// recorded method outside the CRI
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,

    /// Show only calls about this pod: its name, NAMESPACE/NAME, its uid, or a prefix of its
    /// sandbox's id
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// Show only calls about this container: its name, or a prefix of its id
    #[arg(long, value_name = "CONTAINER")]
    container: Option<String>,

    /// Show only ExecSyncs of this probe or hook: liveness, readiness, startup, postStart, preStop,
    /// ambiguous, probe (inferred from a regular period), unknown
    #[arg(long, value_name = "PROBE")]
    probe: Option<String>,

    /// Show only calls that ended in the last DURATION, such as 30s or 10m, at most 24h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<BoundedDuration>,

    /// Show only the last N calls
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number::<usize, 0, { u64::MAX }>)]
    last: Option<usize>,

    /// Show only the N slowest calls, the slowest first
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number::<usize, 0, { u64::MAX }>, conflicts_with_all = ["last", "follow"])]
    slowest: Option<usize>,

    /// Show calls as they end, after the last 10 matching calls; --last or --since select others
    #[arg(short, long)]
    follow: bool,

    /// Output format: table, json or yaml (a list; with --follow one document per item)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl CallsCommand {
    /// Queries the calls and prints them.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.admin.client()?;
        let query = CallsQuery {
            method: self.method,
            pod: self.pod,
            container: self.container,
            probe: self.probe,
            since_ms: self.since.map(milliseconds),
            last: self.last,
            slowest: self.slowest,
        };
        match (self.follow, self.output) {
            (true, output) => follow(&client, query, output).await,
            (false, OutputFormat::Json | OutputFormat::Yaml) => documents(&client, &query, self.output).await,
            (false, _) => table(&client, &query).await,
        }
    }
}

async fn table(client: &Client, query: &CallsQuery) -> Result<(), CliError> {
    let calls: Vec<Call> =
        serde_json::from_slice(&client.calls(query).await?).context("the response is not a list of calls")?;
    if calls.is_empty() {
        print("no calls\n")?;
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = calls.iter().map(row).collect();
    let screen = Screen::stdout();
    screen.print(&Table::new(columns(), screen).render(&rows))?;
    Ok(())
}

async fn documents(client: &Client, query: &CallsQuery, output: OutputFormat) -> Result<(), CliError> {
    let answer = client.calls(query).await?;
    let calls: Vec<&RawValue> =
        serde_json::from_slice(&answer).context("the response is not a list of calls")?;
    print(&output.list(&calls)?)?;
    Ok(())
}

async fn follow(client: &Client, mut query: CallsQuery, output: OutputFormat) -> Result<(), CliError> {
    if query.last.is_none() && query.since_ms.is_none() {
        query.last = Some(FOLLOW_BACKLOG);
    }
    let read = |line: &[u8]| {
        Ok(match serde_json::from_slice(line).context("the response has a line that is not a call")? {
            LogLine::Call(call) => FollowItem::Row(row(&call)),
            LogLine::Missed { missed } => FollowItem::Remark(format!(
                "(missed {missed} calls, of any method, because they arrived too fast)"
            )),
        })
    };
    super::follow::follow(client.follow(&query).await?, output, columns(), read).await
}

fn columns() -> [Column; 11] {
    [
        Column::numeric("ID").expected_width("10000"),
        Column::text("TIME (UTC)").expected_width("13:09:32.123"),
        Column::text("METHOD").expected_width("PodSandboxStatus"),
        Column::text("CODE"),
        Column::numeric("DURATION"),
        Column::numeric("SENT").expected_width("1.50 KiB").optional(),
        Column::numeric("RECEIVED").optional(),
        Column::text("PEER").expected_width("kubelet[12345]").optional(),
        Column::numeric("MARGIN").optional(),
        Column::text("SLOWEST PHASE").expected_width("start 88 %").optional(),
        Column::text("SUBJECT").expected_width("0123456789abc exit 0 timeout 1s"),
    ]
}

fn row(call: &Call) -> Vec<Cell> {
    vec![
        Cell::new(call.id.to_string()),
        Cell::new(format::time(&call.start)),
        Cell::new(&call.method),
        Cell::styled(&call.code, style_of_code(&call.code)),
        Cell::new(format::milliseconds(call.duration_ms)),
        Cell::new(format::size(call.request_bytes)),
        Cell::new(format::size(call.response_bytes)),
        Cell::new(peer(call)),
        margin(call),
        Cell::new(dominant_phase(call)),
        Cell::styled(subject(call), style_of_exit(call)),
    ]
}

fn style_of_code(code: &str) -> Style {
    match code {
        "OK" => Style::new(),
        _ => AnsiColor::Red.on_default(),
    }
}

fn style_of_exit(call: &Call) -> Style {
    match call.exec.as_ref().and_then(|exec| exec.exit_code) {
        None | Some(0) => Style::new(),
        Some(_) => AnsiColor::Yellow.on_default(),
    }
}

/// Returns the timeout margin of an ExecSync, in red if it is negative.
fn margin(call: &Call) -> Cell {
    match call.exec.as_ref().and_then(|exec| exec.margin_ms) {
        None => Cell::new(""),
        Some(late) if late < 0.0 => {
            Cell::styled(format!("-{}", format::milliseconds(-late)), AnsiColor::Red.on_default())
        }
        Some(margin) => Cell::new(format::milliseconds(margin)),
    }
}

/// Returns the phase that took most of the time of an ExecSync, or the reason for which the phases
/// are unknown.
fn dominant_phase(call: &Call) -> String {
    let Some(phases) = call.exec.as_ref().and_then(|exec| exec.phases.as_ref()) else {
        return String::new();
    };
    if phases.state != "complete" {
        return phases.state.clone();
    }
    let known = phases.named().into_iter().filter_map(|(name, time)| Some((name, time?)));
    let most = known.max_by(|(_, one), (_, other)| one.total_cmp(other));
    most.map_or_else(String::new, |(name, time)| {
        format!("{name} {:.0} %", 100.0 * time / call.duration_ms.max(f64::MIN_POSITIVE))
    })
}

/// Returns the peer as `kubelet[4711]`, with `?` for an unknown program.
fn peer(call: &Call) -> String {
    let Some(peer) = &call.peer else { return "?".to_owned() };
    let program = peer.program.as_deref().unwrap_or("?");
    peer.pid.map_or_else(|| program.to_owned(), |pid| format!("{program}[{pid}]"))
}

/// Returns the subject of a call: pod, container, and for an ExecSync its probe, exit code, timeout
/// and command.
fn subject(call: &Call) -> String {
    let mut parts = Vec::new();
    if let Some(pod) = &call.pod {
        match (&pod.namespace, &pod.name) {
            (Some(namespace), Some(name)) => parts.push(format!("{namespace}/{name}")),
            _ => parts.extend(pod.id.as_deref().map(short)),
        }
    }
    if let Some(container) = &call.container {
        let name = container.name.clone().or_else(|| container.id.as_deref().map(short));
        parts.extend(name);
    }
    if let Some(exec) = &call.exec {
        parts.extend(exec.probe.as_ref().map(|probe| probe.r#type.clone()));
        parts.push(exec.exit_code.map_or_else(|| "exit ?".to_owned(), |code| format!("exit {code}")));
        if exec.timeout_seconds != 0 {
            parts.push(format!("timeout {}s", exec.timeout_seconds));
        }
        parts.push(format::command(&exec.command));
        if exec.command_truncated {
            parts.push("…".to_owned());
        }
    }
    parts.join(" ")
}

fn short(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}
