//! Prints rows of a table whenever they change, as `kubectl get --watch` does.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;

use super::CliError;
use super::table::{Cell, Column, Table};
use crate::terminal::screen::{Screen, print};

/// Interval between queries of a watch.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// An object that is watched.
pub(super) struct WatchItem {
    /// Identity of the object.
    pub(super) key: String,
    /// Everything about the object that is worth a new row. Ages are not.
    pub(super) state: String,
    /// The text to print.
    pub(super) output: WatchOutput,
}

/// The text that a watch prints about an object.
pub(super) enum WatchOutput {
    /// A row of the table.
    Row(Vec<Cell>),
    /// A whole document or line.
    Document(String),
}

/// Queries objects until standard output is closed, and prints those that are new or have changed.
pub(super) async fn watch(
    columns: Vec<Column>,
    mut query: impl AsyncFnMut() -> Result<Vec<WatchItem>, CliError>,
) -> Result<(), CliError> {
    let screen = Screen::stdout();
    let mut table = Table::new(columns, screen);
    table.expect_rows();
    let mut known: HashMap<String, String> = HashMap::new();
    let mut is_first = true;
    loop {
        let items = query().await?;
        let changed: Vec<WatchItem> =
            items.into_iter().filter(|item| known.get(&item.key) != Some(&item.state)).collect();
        let rows: Vec<&Vec<Cell>> = changed
            .iter()
            .filter_map(|item| match &item.output {
                WatchOutput::Row(row) => Some(row),
                WatchOutput::Document(_) => None,
            })
            .collect();
        table.fit(rows.iter().copied());
        let mut text = String::new();
        if !rows.is_empty() && std::mem::take(&mut is_first) {
            table.shrink();
            text += &(table.header() + "\n");
        }
        for item in &changed {
            match &item.output {
                WatchOutput::Row(row) => text += &(table.line(row) + "\n"),
                WatchOutput::Document(document) => text += document,
            }
        }
        let is_open = if rows.is_empty() { print(&text)? } else { screen.print(&text)? };
        if !is_open {
            return Ok(());
        }
        known.extend(changed.into_iter().map(|item| (item.key, item.state)));
        sleep(WATCH_INTERVAL).await;
    }
}
