//! `probeshim status`

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::Failure;
use super::ask::{Output, Where};
use super::table::{Cell, Column, Table};
use crate::admin::shape;
use crate::terminal::human::{self, harmless_json};
use crate::terminal::screen::{Screen, print};

/// The flags of `status`, as they were written.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    at: Where,

    /// table or json
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true)]
    output: Output,
}

impl Status {
    /// Asks and prints.
    pub async fn run(self) -> Result<(), Failure> {
        let answer = self.at.client()?.status().await?;
        let text = match self.output {
            Output::Json => {
                let status: &RawValue =
                    serde_json::from_slice(&answer).context("the answer is not a status")?;
                harmless_json(status.get()) + "\n"
            }
            Output::Table => table(
                &serde_json::from_slice(&answer).context("the answer is not a status")?,
                Screen::of_stdout(),
            ),
        };
        print(&text)?;
        Ok(())
    }
}

fn table(status: &shape::Status, screen: Screen) -> String {
    let rows = rows(status);
    let mut table = Table::new(["", ""].map(Column::words), screen);
    table.fit(&rows);
    rows.iter().map(|row| table.line(row) + "\n").collect()
}

fn rows(status: &shape::Status) -> Vec<Vec<Cell>> {
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
    let up = human::age(&status.started, Timestamp::now());
    [
        ("probeshim", format!("{}, pid {}, up {up}", status.version, status.pid), Style::new()),
        ("mode", status.mode.clone(), Style::new()),
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
        (
            "calls",
            format!(
                "{} in flight, {} seen, {} kept, {} dropped",
                status.calls.in_flight, status.calls.observed, status.calls.kept, status.calls.dropped
            ),
            dropped,
        ),
    ]
    .into_iter()
    .map(|(name, value, style)| vec![Cell::styled(name, Style::new().bold()), Cell::styled(value, style)])
    .collect()
}
