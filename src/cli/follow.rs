//! Prints lines that a running probeshim streams, as they arrive.

use anyhow::Context as _;

use super::CliError;
use super::admin_args::OutputFormat;
use super::table::{Cell, Column, Table};
use crate::admin::Followed;
use crate::terminal::screen::print;

/// A streamed line in table format.
pub(super) enum FollowItem {
    /// A row of the table.
    Row(Vec<Cell>),
    /// A remark between rows, such as the number of missed items.
    Remark(String),
}

/// Prints lines until standard output is closed. Returns an error if the probeshim ends. Documents
/// are printed as they arrive.
pub(super) async fn follow(
    mut lines: Followed,
    output: OutputFormat,
    columns: impl IntoIterator<Item = Column>,
    read: impl Fn(&[u8]) -> anyhow::Result<FollowItem>,
) -> Result<(), CliError> {
    let screen = output.screen();
    let mut table = Table::new(columns, screen);
    table.expect_rows();
    table.shrink();
    let is_document = output.is_document();
    let mut is_read = is_document || screen.print(&(table.header() + "\n"))?;
    while is_read {
        let Some(line) = lines.line().await else {
            return Err(anyhow::anyhow!("probeshim has ended").into());
        };
        if is_document {
            let document =
                serde_json::from_slice(&line).context("the response has a line that is not JSON")?;
            is_read = print(&output.streamed(document)?)?;
            continue;
        }
        is_read = match read(&line)? {
            FollowItem::Remark(remark) => screen.print(&(remark + "\n"))?,
            FollowItem::Row(row) => {
                let rows = [row];
                table.fit(&rows);
                screen.print(&(table.line(&rows[0]) + "\n"))?
            }
        };
    }
    Ok(())
}
