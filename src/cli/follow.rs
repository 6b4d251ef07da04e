//! Lines of a running probeshim, shown as they come.

use super::CliError;
use super::admin_args::OutputFormat;
use super::table::{Cell, Column, Table};
use crate::admin::Followed;
use crate::terminal::format::harmless_json;
use crate::terminal::screen::{Screen, print};

/// What a line is to a reader of a table.
pub(super) enum FollowItem {
    /// One of the things that are followed.
    Row(Vec<Cell>),
    /// Something about them.
    Remark(String),
}

/// Shows lines until the reader has had enough, or the probeshim has ended, which is a failure. JSON is shown as it comes.
pub(super) async fn follow(
    mut lines: Followed,
    output: OutputFormat,
    columns: impl IntoIterator<Item = Column>,
    read: impl Fn(&[u8]) -> anyhow::Result<FollowItem>,
) -> Result<(), CliError> {
    let mut table = Table::new(columns, Screen::stdout());
    table.expect_rows();
    table.shrink();
    let mut is_read = output == OutputFormat::Json || print(&(table.header() + "\n"))?;
    while is_read {
        let Some(line) = lines.line().await else {
            return Err(anyhow::anyhow!("the probeshim has ended").into());
        };
        let text = match output {
            OutputFormat::Json => harmless_json(&String::from_utf8_lossy(&line)) + "\n",
            OutputFormat::Table => match read(&line)? {
                FollowItem::Remark(remark) => remark + "\n",
                FollowItem::Row(row) => {
                    let rows = [row];
                    table.fit(&rows);
                    table.line(&rows[0]) + "\n"
                }
            },
        };
        is_read = print(&text)?;
    }
    Ok(())
}
