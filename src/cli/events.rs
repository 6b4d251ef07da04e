//! `probeshim events`

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat, milliseconds};
use super::follow::FollowItem;
use super::known_objects::check_event_names;
use super::label_selector::LabelSelector;
use super::labelled_pods::LabelledPods;
use super::pod_arg::ListNamespaceArgs;
use super::table::{Cell, Column, Table};
use crate::admin::Client;
use crate::admin::api::{Event, EventLine, EventsQuery};
use crate::config::BoundedDuration;
use crate::events::reason::{self, UNHEALTHY};
use crate::suggest::did_you_mean;
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};

/// Minimum width of messages. In a narrower column, they are shown below their rows.
const MIN_MESSAGE_WIDTH: usize = 40;

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct EventsCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Show only events that happened within this time, such as 30s or 10m, up to 24h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<BoundedDuration>,

    /// Show only events about this pod: NAME, NAMESPACE/NAME or uid
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    #[command(flatten)]
    namespace: ListNamespaceArgs,

    /// Show only events of this type
    #[arg(long, value_name = "TYPE", value_parser = event_types())]
    r#type: Option<String>,

    /// Show only events with this reason, case-insensitive, such as Unhealthy
    #[arg(long, value_name = "REASON", value_parser = known_reason)]
    reason: Option<String>,

    /// Show only events about pods with these labels, such as app=web, among the pods that exist.
    /// The selectors are those of `probeshim pods`
    #[arg(short = 'l', long, value_name = "SELECTOR", allow_hyphen_values = true, conflicts_with = "follow")]
    selector: Option<LabelSelector>,

    /// Show events as they happen, after the recorded ones
    #[arg(short, long, visible_alias = "watch", visible_short_alias = 'w')]
    follow: bool,

    /// Output format: table, wide, json or yaml (a list; with --follow one document per item)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::WITHOUT_NAMES), hide_possible_values = true)]
    output: OutputFormat,
}

impl EventsCommand {
    /// Queries the events and prints them.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let query = EventsQuery {
            since_ms: self.since.map(milliseconds),
            namespace: self.namespace.of.namespace,
            pod: self.pod,
            r#type: self.r#type,
            reason: self.reason,
        };
        match (self.follow, self.output) {
            (true, output) => follow(&client, &query, output).await,
            (false, output) => list(&client, &query, self.selector.as_ref(), output).await,
        }
    }
}

async fn list(
    client: &Client,
    query: &EventsQuery,
    selector: Option<&LabelSelector>,
    output: OutputFormat,
) -> Result<(), CliError> {
    let not_one = "the response is not a list of events";
    let answer = client.events(query).await?;
    let mut json: Vec<&RawValue> = serde_json::from_slice(&answer).context(not_one)?;
    let events: Result<Vec<Event>, _> = json.iter().map(|event| serde_json::from_str(event.get())).collect();
    let mut events = events.context(not_one)?;
    if let Some(selector) = selector {
        let pods = LabelledPods::query(client, selector).await?;
        let is_selected: Vec<bool> =
            events.iter().map(|event| pods.has(event.namespace.as_deref(), event.pod.as_deref())).collect();
        retain(&mut json, &is_selected);
        retain(&mut events, &is_selected);
    }
    let remark = if events.is_empty() { Some(nothing(client, query, selector).await?) } else { None };
    let screen = output.screen();
    match (output, remark) {
        _ if output.is_document() => print(&output.list(&json)?)?,
        (_, Some(remark)) => print(&remark)?,
        (_, None) => screen.print(&render(&events, Timestamp::now(), screen))?,
    };
    Ok(())
}

/// Keeps the items at the indices that are selected.
fn retain<T>(items: &mut Vec<T>, is_selected: &[bool]) {
    let mut is_selected = is_selected.iter();
    items.retain(|_| is_selected.next() == Some(&true));
}

/// Returns the remark about an empty list. An unknown pod or namespace is an error.
async fn nothing(
    client: &Client,
    query: &EventsQuery,
    selector: Option<&LabelSelector>,
) -> Result<String, CliError> {
    let recorded: Vec<Event> = serde_json::from_slice(&client.events(&EventsQuery::default()).await?)
        .context("the response is not a list of events")?;
    check_event_names(client, query, &recorded).await?;
    Ok(match recorded.len() {
        _ if *query == EventsQuery::default() && selector.is_none() => "no events\n".to_owned(),
        1 => "no events match, of 1 recorded event\n".to_owned(),
        count => format!("no events match, of {count} recorded events\n"),
    })
}

/// Returns a reason in the letters of events. The error suggests a similar reason.
fn known_reason(text: &str) -> Result<String, String> {
    let known = reason::ALL.into_iter().find(|reason| reason.eq_ignore_ascii_case(text));
    known.map(str::to_owned).ok_or_else(|| {
        let hint = did_you_mean(text, reason::ALL);
        format!("must be the reason of an event, such as Unhealthy or Killing{hint}")
    })
}

/// Returns the table of events, with their messages wrapped.
fn render(events: &[Event], now: Timestamp, screen: Screen) -> String {
    let rows: Vec<Vec<Cell>> = events.iter().map(|event| row(event, now)).collect();
    Table::new(columns(), screen).render_wrapped(&rows, MIN_MESSAGE_WIDTH)
}

/// Returns the parser of event types.
fn event_types() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(["Normal", "Warning"])
}

async fn follow(client: &Client, query: &EventsQuery, output: OutputFormat) -> Result<(), CliError> {
    let read = |line: &[u8]| {
        Ok(match serde_json::from_slice(line).context("the response has a line that is not an event")? {
            EventLine::Event(event) => FollowItem::Row(row(&event, Timestamp::now())),
            EventLine::Missed { missed } => {
                FollowItem::Remark(format!("(missed {missed} events because they arrived too fast)"))
            }
        })
    };
    super::follow::follow(client.follow_events(query).await?, output, columns(), read).await
}

fn columns() -> [Column; 6] {
    [
        Column::text("TIME (UTC)").expected_width("13:09:32.123"),
        Column::text("TYPE").expected_width("Warning"),
        Column::text("REASON").expected_width("ContainerOutOfMemory"),
        Column::numeric("COUNT").optional(),
        Column::text("OBJECT").expected_width("namespace/pod container"),
        Column::text("MESSAGE"),
    ]
}

fn row(event: &Event, now: Timestamp) -> Vec<Cell> {
    let style = if event.r#type == "Warning" { AnsiColor::Yellow.on_default() } else { Style::new() };
    let pod = event.pod.as_ref().map(|pod| match &event.namespace {
        Some(namespace) => format!("{namespace}/{pod}"),
        None => pod.clone(),
    });
    let object: Vec<String> = pod.into_iter().chain(event.container.clone()).collect();
    vec![
        Cell::new(format::recent_time(&event.time, now)),
        Cell::styled(&event.r#type, style),
        Cell::styled(&event.reason, style),
        Cell::new(event.count.to_string()),
        Cell::new(object.join(" ")),
        Cell::new(message(event)),
    ]
}

/// Returns the message of an event for people: without line feeds at its end, and with a remark
/// where a probe wrote nothing.
pub(super) fn message(event: &Event) -> String {
    let message = event.message.trim_end();
    let is_empty = event.reason == UNHEALTHY && message.ends_with("probe failed:");
    if is_empty { format!("{message} (no output)") } else { message.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshots::assert_screens;
    use super::*;

    #[test]
    fn an_unknown_reason_of_events_is_an_error_that_suggests_a_known_one() {
        assert_eq!(known_reason("unhealthy").as_deref(), Ok("Unhealthy"));
        let error = known_reason("Unhealty").unwrap_err();
        assert!(error.ends_with("such as Unhealthy or Killing, did you mean \"Unhealthy\"?"), "{error}");
    }

    #[test]
    fn messages_of_events_are_whole_on_a_narrow_terminal() {
        let event =
            |time: &str, kind: &str, reason: &str, pod: Option<&str>, message: &str, count: u64| -> Event {
                serde_json::from_value(json!({
                "time": time, "type": kind, "reason": reason, "namespace": pod.map(|_| "shop"), "pod": pod,
                "container": pod.map(|_| "main"), "message": message, "count": count,
            }))
            .unwrap()
            };
        let missing = "Liveness probe errored and resulted in unknown state: rpc error: code = Unknown desc = failed to exec in \
                       container: exec: \"curl\": executable file not found in $PATH\n";
        let events = [
            event(
                "2026-11-23T21:59:48.000Z",
                "Normal",
                "RuntimeReady",
                None,
                "containerd v2.1.4 is ready",
                1,
            ),
            event(
                "2026-11-24T12:59:48.123Z",
                "Warning",
                "Unhealthy",
                Some("web-7d4b9c6f8-x2x9z"),
                missing,
                6,
            ),
            event(
                "2026-11-24T12:59:50.123Z",
                "Warning",
                "Unhealthy",
                Some("web"),
                "Readiness probe failed: \n",
                1,
            ),
        ];
        let now = "2026-11-24T13:00:00Z".parse().unwrap();
        assert_screens("events", |screen| render(&events, now, screen));
    }
}
