//! Aligned tables, cut to the width of the terminal, without control characters.

use std::borrow::Cow;

use anstyle::Style;

use super::line::OutputLine;
use crate::terminal::format::wrapped;
use crate::terminal::screen::Screen;
use crate::terminal::{MAX_NAME_WIDTH, harmless_text, width};

/// Blanks between columns.
const COLUMN_GAP: usize = 2;

/// Width of the last column below which optional columns are hidden.
const MIN_LAST_WIDTH: usize = 30;

/// Minimum width of a wrapped column beside which the last column has no room.
const MIN_WRAPPED_WIDTH: usize = 12;

/// Minimum of the maximum width of a column other than the last, however narrow the terminal is.
const MIN_MAX_WIDTH: usize = 40;

/// Columns and their widths, which grow with the rows. Rows may be added in batches.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    screen: Screen,
}

/// A column. It is as wide as its widest cell so far.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: &'static str,
    alignment: Alignment,
    optional: bool,
    omit_empty: bool,
    visible: bool,
    expected_width: usize,
    width: usize,
}

/// Side on which the texts of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    Left,
    Right,
}

/// The text of one column in one row.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self { text: harmless_text(text.as_ref()), style: Style::new() }
    }

    pub(super) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { style, ..Self::new(text) }
    }
}

impl Column {
    /// A left-aligned column of text.
    pub(super) fn text(title: &'static str) -> Self {
        Self {
            title,
            alignment: Alignment::Left,
            optional: false,
            omit_empty: false,
            visible: true,
            expected_width: 0,
            width: width(title),
        }
    }

    /// A right-aligned column of numbers.
    pub(super) fn numeric(title: &'static str) -> Self {
        Self { alignment: Alignment::Right, ..Self::text(title) }
    }

    /// Sets the width that most rows need, by an example.
    pub(super) fn expected_width(self, text: &str) -> Self {
        Self { expected_width: width(text), ..self }
    }

    /// Makes the column optional: it is hidden if the terminal is too narrow.
    pub(super) fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Omits the column from a rendered table if no row has a text in it.
    pub(super) fn omit_empty(self) -> Self {
        Self { omit_empty: true, ..self }
    }
}

impl Table {
    pub(super) fn new(columns: impl IntoIterator<Item = Column>, screen: Screen) -> Self {
        Self { columns: columns.into_iter().collect(), screen }
    }

    /// Makes columns as wide as most rows need, before the first row, so that columns do not move
    /// while rows arrive.
    pub(super) fn expect_rows(&mut self) {
        for column in &mut self.columns {
            column.width = column.width.max(column.expected_width);
        }
    }

    /// Makes columns as wide as these rows need.
    pub(super) fn fit<'a>(&mut self, rows: impl IntoIterator<Item = &'a Vec<Cell>>) {
        let max_width = self.max_column_width();
        for row in rows {
            for (column, cell) in self.columns.iter_mut().zip(row) {
                column.width = column.width.max(width(&cell.text).min(max_width));
            }
        }
    }

    /// Hides optional columns, the first of them first, until the last column has its minimum
    /// width.
    pub(super) fn shrink(&mut self) {
        self.shrink_to(MIN_LAST_WIDTH);
    }

    fn shrink_to(&mut self, min_last_width: usize) {
        let Some(width) = self.screen.width else { return };
        while self.required_width(min_last_width) > width {
            let Some(column) = self.columns.iter_mut().find(|column| column.optional && column.visible)
            else {
                return;
            };
            column.visible = false;
        }
    }

    /// Returns the maximum width of a column other than the last. A limit keeps one long name from
    /// hiding the other columns.
    fn max_column_width(&self) -> usize {
        self.screen.width.map_or(MAX_NAME_WIDTH, |width| (width / 2).clamp(MIN_MAX_WIDTH, MAX_NAME_WIDTH))
    }

    /// Returns the width that all visible columns need, of which the last may be as narrow as this.
    fn required_width(&self, min_last_width: usize) -> usize {
        let mut visible = self.columns.iter().filter(|column| column.visible);
        let Some(last) = visible.next_back() else { return 0 };
        let others = visible.map(|column| column.width + COLUMN_GAP);
        others.sum::<usize>() + last.width.min(min_last_width)
    }

    /// Renders the table with all its rows.
    pub(super) fn render(mut self, rows: &[Vec<Cell>]) -> String {
        self.choose_columns(rows, MIN_LAST_WIDTH);
        std::iter::once(self.header())
            .chain(rows.iter().map(|row| self.line(row)))
            .map(|line| line + "\n")
            .collect()
    }

    /// Fits the columns to these rows. Hides those that are empty, or for which there is no room if
    /// the last one has its minimum width.
    fn choose_columns(&mut self, rows: &[Vec<Cell>], min_last_width: usize) {
        self.fit(rows);
        for (index, column) in self.columns.iter_mut().enumerate().filter(|(_, column)| column.omit_empty) {
            column.visible = rows.iter().any(|row| row.get(index).is_some_and(|cell| !cell.text.is_empty()));
        }
        self.shrink_to(min_last_width);
    }

    /// Renders the table with all its rows. Columns for which there is no room are hidden, as by
    /// [`Self::render`], and the texts of the last one are wrapped, as by [`Self::render_wrapped`].
    pub(super) fn render_complete(mut self, rows: &[Vec<Cell>], min_width: usize) -> String {
        self.choose_columns(rows, min_width);
        let shown = |row: &Vec<Cell>| -> Vec<Cell> {
            let cells = self.columns.iter().zip(row).filter(|(column, _)| column.visible);
            cells.map(|(_, cell)| cell.clone()).collect()
        };
        let rows: Vec<Vec<Cell>> = rows.iter().map(shown).collect();
        self.columns.retain(|column| column.visible);
        let last_width = self.columns.last().map_or(0, |last| last.width);
        self.render_wrapped(&rows, min_width.min(last_width))
    }

    /// Renders the table with all its rows. The texts of the last column are wrapped. They are
    /// shown below their rows if the column would be narrower than `min_width`.
    pub(super) fn render_wrapped(mut self, rows: &[Vec<Cell>], min_width: usize) -> String {
        let Some(screen_width) = self.screen.width else { return self.render(rows) };
        self.fit(rows);
        if self.start_of_last() + min_width <= screen_width {
            let lines = rows.iter().map(|row| self.wrapped_row(row, min_width));
            return self.header() + "\n" + &lines.collect::<String>();
        }
        let (indent, mut others) = (2 * COLUMN_GAP, Self { columns: self.columns, screen: self.screen });
        others.columns.pop();
        let mut text = others.header() + "\n";
        for row in rows {
            let Some((last, before)) = row.split_last() else { continue };
            text += &others.wrapped_row(before, MIN_WRAPPED_WIDTH);
            let wrapped = wrapped(&last.text, screen_width.saturating_sub(indent).max(min_width));
            text += &indented(others.screen, &wrapped, indent, last.style);
        }
        text
    }

    /// Returns the lines of a row, with the text of its last column wrapped. The column has at
    /// least this width, and text beyond the screen is cut.
    fn wrapped_row(&self, row: &[Cell], min_width: usize) -> String {
        let Some((last, others)) = row.split_last() else { return String::new() };
        let start = self.start_of_last();
        let width = self.screen.width.map_or(usize::MAX, |width| width.saturating_sub(start).max(min_width));
        let wrapped = wrapped(&last.text, width);
        let (first, rest) = wrapped.split_once('\n').unwrap_or((&wrapped, ""));
        let first = Cell { text: first.trim_start().to_owned(), style: last.style };
        let row: Vec<Cell> = others.iter().cloned().chain([first]).collect();
        self.line(&row) + "\n" + &indented(self.screen, rest, start, last.style)
    }

    /// Returns the number of columns of the screen before the last column.
    fn start_of_last(&self) -> usize {
        let before = self.columns.iter().rev().skip(1);
        before.map(|column| column.width + COLUMN_GAP).sum()
    }

    /// Returns the line of titles.
    pub(super) fn header(&self) -> String {
        let titles: Vec<Cell> =
            self.columns.iter().map(|column| Cell::styled(column.title, Style::new().bold())).collect();
        self.line(&titles)
    }

    /// Returns the line of a row, without a line feed.
    pub(super) fn line(&self, row: &[Cell]) -> String {
        let mut line = OutputLine::new(self.screen);
        let last = self.columns.iter().rposition(|column| column.visible);
        let cells = self.columns.iter().zip(row).enumerate();
        for (index, (column, cell)) in cells.filter(|(_, (column, _))| column.visible) {
            let text = if Some(index) == last {
                Cow::Borrowed(cell.text.as_str())
            } else {
                self.screen.shortened(&cell.text, self.max_column_width())
            };
            let padding = column.width.saturating_sub(width(&text));
            if column.alignment == Alignment::Right {
                line.skip(padding);
            }
            let style = if self.screen.colour { cell.style } else { Style::new() };
            if !line.push(&text, style) {
                break;
            }
            line.skip(COLUMN_GAP + if column.alignment == Alignment::Right { 0 } else { padding });
        }
        line.into_text()
    }
}

/// Returns the lines of a wrapped text, each moved to the right.
fn indented(screen: Screen, text: &str, indent: usize, style: Style) -> String {
    let style = if screen.colour { style } else { Style::new() };
    let line = |line: &str| {
        let mut output = OutputLine::new(screen);
        output.skip(indent);
        output.push(line, style);
        output.into_text() + "\n"
    };
    text.lines().map(str::trim_start).filter(|text| !text.is_empty()).map(line).collect()
}

#[cfg(test)]
mod tests;
