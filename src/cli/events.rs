//! `probeshim events`

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use serde_json::value::RawValue;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat, milliseconds};
use super::follow::FollowItem;
use super::table::{Cell, Column, Table};
use crate::admin::Client;
use crate::admin::api::{Event, EventLine, EventsQuery};
use crate::config::BoundedDuration;
use crate::events::reason::UNHEALTHY;
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct EventsCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Show only events that happened within this time, such as 30s or 10m, up to 24h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<BoundedDuration>,

    /// Show events as they happen, after the recorded ones
    #[arg(short, long)]
    follow: bool,

    /// Output format: table, json or yaml (a list; with --follow one document per item)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl EventsCommand {
    /// Queries the events and prints them.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let query = EventsQuery { since_ms: self.since.map(milliseconds) };
        match (self.follow, self.output) {
            (true, output) => follow(&client, &query, output).await,
            (false, OutputFormat::Json | OutputFormat::Yaml) => {
                let answer = client.events(&query).await?;
                let events: Vec<&RawValue> =
                    serde_json::from_slice(&answer).context("the response is not a list of events")?;
                print(&self.output.list(&events)?)?;
                Ok(())
            }
            (false, _) => table(&client, &query).await,
        }
    }
}

async fn table(client: &Client, query: &EventsQuery) -> Result<(), CliError> {
    let events: Vec<Event> = serde_json::from_slice(&client.events(query).await?)
        .context("the response is not a list of events")?;
    if events.is_empty() {
        print("no events\n")?;
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = events.iter().map(row).collect();
    let screen = Screen::stdout();
    screen.print(&Table::new(columns(), screen).render(&rows))?;
    Ok(())
}

async fn follow(client: &Client, query: &EventsQuery, output: OutputFormat) -> Result<(), CliError> {
    let read = |line: &[u8]| {
        Ok(match serde_json::from_slice(line).context("the response has a line that is not an event")? {
            EventLine::Event(event) => FollowItem::Row(row(&event)),
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

fn row(event: &Event) -> Vec<Cell> {
    let style = if event.r#type == "Warning" { AnsiColor::Yellow.on_default() } else { Style::new() };
    let pod = event.pod.as_ref().map(|pod| match &event.namespace {
        Some(namespace) => format!("{namespace}/{pod}"),
        None => pod.clone(),
    });
    let object: Vec<String> = pod.into_iter().chain(event.container.clone()).collect();
    vec![
        Cell::new(format::time(&event.time)),
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
