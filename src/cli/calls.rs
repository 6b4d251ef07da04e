//! `probeshim calls`

mod empty;
mod rows;

pub(super) use empty::check_names;

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat, milliseconds};
use super::follow::FollowItem;
use super::pod_arg::NamespaceArg;
use super::query::query_calls;
use crate::admin::Client;
use crate::admin::api::{CallsQuery, LogLine};
use crate::config::{BoundedDuration, whole_number};
use crate::history::{CodeLabel, MethodArg, ProbeLabel};
use crate::terminal::screen::{Screen, print};

/// Default number of past calls that `--follow` shows first.
const FOLLOW_BACKLOG: usize = 10;

/// Arguments of `calls`.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct CallsCommand {
    #[command(flatten)]
    admin: AdminArgs,

    #[command(flatten)]
    namespace: NamespaceArg,

    /// Show only calls of this method: a name, case-insensitive, such as ExecSync, or the path of a
    /// recorded method outside the CRI
    #[arg(long, value_name = "METHOD")]
    method: Option<MethodArg>,

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
    probe: Option<ProbeLabel>,

    /// Show only calls of this client: the name of its program, such as kubelet, or its pid
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,

    /// Show only calls with this CODE, such as DEADLINE_EXCEEDED or client-reset
    #[arg(long, value_name = "CODE")]
    code: Option<CodeLabel>,

    /// Show only calls that failed: with a code other than OK, an exit code other than 0, or an end
    /// after the timeout
    #[arg(long)]
    failed: bool,

    /// Show only calls in flight. The table shows them after those that have ended; json and yaml
    /// only with this flag. Streams, such as GetContainerEvents, need --method
    #[arg(long, conflicts_with_all = ["follow", "slowest", "last", "since", "failed", "code", "all"])]
    in_flight: bool,

    /// Show also calls that an earlier run of probeshim recorded
    #[arg(long)]
    all: bool,

    /// Show only calls that ended in the last DURATION, such as 30s or 10m, at most 24h. Calls of
    /// earlier runs need --all
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<BoundedDuration>,

    /// Show only the last N calls that have ended
    #[arg(long, visible_alias = "tail", value_name = "N", allow_hyphen_values = true, value_parser = whole_number::<usize, 0, { u64::MAX }>)]
    last: Option<usize>,

    /// Show only the N slowest calls, the slowest first
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number::<usize, 0, { u64::MAX }>, conflicts_with_all = ["last", "follow"])]
    slowest: Option<usize>,

    /// Show calls as they end, after the last 10 matching calls; --last or --since select others
    #[arg(short, long, visible_alias = "watch", visible_short_alias = 'w')]
    follow: bool,

    /// Output format: table, json or yaml (a list; with --follow one document per item)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl CallsCommand {
    /// Queries the calls and prints them.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.admin.client()?;
        let is_table = self.output == OutputFormat::Table && self.slowest.is_none() && !self.follow;
        let query = CallsQuery {
            method: self.method.map(|method| method.to_string()),
            namespace: self.namespace.namespace,
            pod: self.pod,
            container: self.container,
            probe: self.probe.map(|probe| probe.to_string()),
            peer: self.peer,
            code: self.code.map(|code| code.to_string()),
            failed: self.failed,
            this_run: !self.all,
            since_ms: self.since.map(milliseconds),
            in_flight: self.in_flight || is_table,
            last: if self.in_flight { Some(0) } else { self.last },
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
    let calls = query_calls(client, query).await?;
    if calls.is_empty() {
        print(&(empty::reason(client, query).await? + "\n"))?;
        return Ok(());
    }
    let screen = Screen::stdout();
    screen.print(&rows::render(&calls, screen, Timestamp::now()))?;
    Ok(())
}

async fn documents(client: &Client, query: &CallsQuery, output: OutputFormat) -> Result<(), CliError> {
    let answer = client.calls(query).await?;
    let calls: Vec<&RawValue> =
        serde_json::from_slice(&answer).context("the response is not a list of calls")?;
    if calls.is_empty() {
        empty::check_names(client, query).await?;
    }
    print(&output.list(&calls)?)?;
    Ok(())
}

async fn follow(client: &Client, mut query: CallsQuery, output: OutputFormat) -> Result<(), CliError> {
    if query.last.is_none() && query.since_ms.is_none() {
        query.last = Some(FOLLOW_BACKLOG);
    }
    let read = |line: &[u8]| {
        Ok(match serde_json::from_slice(line).context("the response has a line that is not a call")? {
            LogLine::Call(call) => FollowItem::Row(rows::row(&call, Timestamp::now())),
            LogLine::Missed { missed } => FollowItem::Remark(format!(
                "(missed {missed} calls, of any method, because they arrived too fast)"
            )),
        })
    };
    super::follow::follow(client.follow(&query).await?, output, rows::columns(), read).await
}
