//! `probeshim calls`

mod empty;
mod rows;

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde_json::value::RawValue;

pub(super) use rows::subject;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat, milliseconds};
use super::follow::FollowItem;
use super::known_objects::check_call_names;
use super::label_selector::LabelSelector;
use super::labelled_pods::LabelledPods;
use super::missing_names::note_missing_names;
use super::pod_arg::ListNamespaceArgs;
use crate::admin::Client;
use crate::admin::api::{CallsQuery, ListedCall, LogLine};
use crate::config::{BoundedDuration, whole_number};
use crate::history::{CodeLabel, MethodArg, ProbeLabel};
use crate::terminal::screen::print;

/// Error of a response with another form.
const NOT_CALLS: &str = "the response is not a list of calls";

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
    namespace: ListNamespaceArgs,

    /// Show only calls of this method: a name, case-insensitive, such as ExecSync, or the path of a
    /// recorded method outside the CRI
    #[arg(long, value_name = "METHOD")]
    method: Option<MethodArg>,

    /// Show only ExecSyncs: the same as --method ExecSync
    #[arg(long, conflicts_with = "method")]
    exec: bool,

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

    /// Show only ExecSyncs of this command, as the table shows it: one argument, such as
    /// 'cat /tmp/healthy'
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,

    /// Show only ExecSyncs with this timeout, such as 1s
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    timeout: Option<BoundedDuration>,

    /// Show only calls of this client: the name of its program, such as kubelet, or its pid
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,

    /// Show only calls about pods with these labels, such as app=web, among the pods that exist.
    /// The selectors are those of `probeshim pods`
    #[arg(short = 'l', long, value_name = "SELECTOR", allow_hyphen_values = true, conflicts_with = "follow")]
    selector: Option<LabelSelector>,

    /// Show only calls with this CODE, such as DEADLINE_EXCEEDED or client-reset
    #[arg(long, value_name = "CODE")]
    code: Option<CodeLabel>,

    /// Show only calls that failed: with a code other than OK, or an exit code other than 0. A late
    /// exit code 0 is a success, which --slowest shows; a subscription that its client ended is no
    /// failure
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

    /// Output format: table, wide, json or yaml (a list; with --follow one document per item)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::WITHOUT_NAMES), hide_possible_values = true)]
    output: OutputFormat,
}

impl CallsCommand {
    /// Queries the calls and prints them.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.admin.client()?;
        let is_table = !self.output.is_document() && self.slowest.is_none() && !self.follow;
        if self.probe.is_some() {
            note_missing_names(&client).await;
        }
        let query = CallsQuery {
            method: if self.exec {
                Some("ExecSync".to_owned())
            } else {
                self.method.map(|method| method.to_string())
            },
            namespace: self.namespace.of.namespace,
            pod: self.pod,
            container: self.container,
            probe: self.probe.map(|probe| probe.to_string()),
            command: self.command,
            timeout_ms: self.timeout.map(milliseconds),
            peer: self.peer,
            code: self.code.map(|code| code.to_string()),
            failed: self.failed,
            this_run: !self.all,
            since_ms: self.since.map(milliseconds),
            in_flight: self.in_flight || is_table,
            settled: !self.follow && !self.in_flight,
            last: if self.in_flight { Some(0) } else { self.last },
            slowest: self.slowest,
        };
        match (self.follow, self.output) {
            (true, output) => follow(&client, query, output).await,
            (false, output) => list(&client, &query, self.selector.as_ref(), output).await,
        }
    }
}

async fn list(
    client: &Client,
    query: &CallsQuery,
    selector: Option<&LabelSelector>,
    output: OutputFormat,
) -> Result<(), CliError> {
    let answer = match selector {
        Some(_) => client.calls(&without_number(query)).await?,
        None => client.calls(query).await?,
    };
    let mut calls: Vec<&RawValue> = serde_json::from_slice(&answer).context(NOT_CALLS)?;
    if let Some(selector) = selector {
        let pods = LabelledPods::query(client, selector).await?;
        calls = select(&calls, &pods, query)?;
    }
    let is_document = output.is_document();
    if calls.is_empty() && !is_document {
        print(&(empty::reason(client, query, selector.is_some()).await? + "\n"))?;
        return Ok(());
    }
    if is_document {
        if calls.is_empty() {
            check_call_names(client, query).await?;
        }
        print(&output.list(&calls)?)?;
        return Ok(());
    }
    let calls: Result<Vec<ListedCall>, _> =
        calls.iter().map(|call| serde_json::from_str(call.get())).collect();
    let screen = output.screen();
    screen.print(&rows::render(&calls.context(NOT_CALLS)?, screen, Timestamp::now()))?;
    Ok(())
}

/// Returns a query for all calls from which the number of a query is selected, in its order.
fn without_number(query: &CallsQuery) -> CallsQuery {
    let all = usize::MAX;
    CallsQuery {
        last: query.last.map(|last| last.min(1) * all),
        slowest: query.slowest.map(|_| all),
        ..query.clone()
    }
}

/// Returns the calls about these pods, at most as many as the query wants. Calls in flight, which
/// come last, do not count.
fn select<'a>(
    calls: &[&'a RawValue],
    pods: &LabelledPods,
    query: &CallsQuery,
) -> Result<Vec<&'a RawValue>, CliError> {
    let (mut ended, mut in_flight) = (Vec::new(), Vec::new());
    for call in calls {
        let listed: ListedCall = serde_json::from_str(call.get()).context(NOT_CALLS)?;
        if listed.pod().is_some_and(|pod| pods.has(pod.namespace.as_deref(), pod.name.as_deref())) {
            let kind = if matches!(listed, ListedCall::Ended(_)) { &mut ended } else { &mut in_flight };
            kind.push(*call);
        }
    }
    let superfluous = query.last.map_or(0, |last| ended.len().saturating_sub(last));
    ended.drain(..superfluous);
    ended.truncate(query.slowest.unwrap_or(usize::MAX));
    ended.append(&mut in_flight);
    Ok(ended)
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
