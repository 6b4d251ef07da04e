//! Tables: aligned, cut to the terminal's width, safe to show.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::human::harmless;
use super::screen::Screen;

/// Blanks between columns.
const GAP: usize = 2;

/// Columns and how wide they have become; it is given rows a few at a time.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    title: &'static str,
    is_figure: bool,
    width: usize,
}

/// What stands in one column of one row.
#[derive(Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self { text: harmless(text.as_ref()), style: Style::new() }
    }

    pub(super) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { style, ..Self::new(text) }
    }
}

impl Table {
    /// A table with these columns; those whose title begins with `>` hold figures, which end where the title ends.
    pub(super) fn new(titles: &[&'static str]) -> Self {
        let column = |title: &&'static str| {
            let (title, is_figure) = match title.strip_prefix('>') {
                Some(title) => (title, true),
                None => (*title, false),
            };
            Column { title, is_figure, width: title.width() }
        };
        Self { columns: titles.iter().map(column).collect() }
    }

    /// Makes columns as wide as these rows need.
    pub(super) fn fit(&mut self, rows: &[Vec<Cell>]) {
        for row in rows {
            for (column, cell) in self.columns.iter_mut().zip(row) {
                column.width = column.width.max(cell.text.width());
            }
        }
    }

    /// The line of titles.
    pub(super) fn header(&self, screen: Screen) -> String {
        let titles: Vec<Cell> =
            self.columns.iter().map(|column| Cell::styled(column.title, Style::new().bold())).collect();
        self.line(&titles, screen)
    }

    /// The line of a row, without its end.
    pub(super) fn line(&self, row: &[Cell], screen: Screen) -> String {
        let mut line = Line { text: String::new(), left: screen.width.unwrap_or(usize::MAX), blanks: 0 };
        for (column, cell) in self.columns.iter().zip(row) {
            let padding = column.width.saturating_sub(cell.text.width());
            if column.is_figure {
                line.blanks += padding;
            }
            let style = if screen.colour { cell.style } else { Style::new() };
            if !line.push(&cell.text, style) {
                break;
            }
            line.blanks += GAP + if column.is_figure { 0 } else { padding };
        }
        line.text
    }
}

/// A line that grows until it is full. Blanks are held back until something follows them.
struct Line {
    text: String,
    left: usize,
    blanks: usize,
}

impl Line {
    /// Adds a text, or as much as there is room for and an ellipsis; says whether all of it went in.
    fn push(&mut self, text: &str, style: Style) -> bool {
        if text.is_empty() {
            return true;
        }
        let needed = self.blanks + text.width();
        if self.left == 0 {
            return false;
        }
        // Where not even the blanks fit, the ellipsis stands in the last place.
        self.blanks = self.blanks.min(self.left - 1);
        let (shown, is_whole) = if needed <= self.left {
            (text.to_owned(), true)
        } else {
            (cut(text, self.left - self.blanks), false)
        };
        let width = shown.width();
        let blanks = self.blanks;
        let _ = write!(self.text, "{:blanks$}{style}{shown}{style:#}", "");
        self.left -= self.blanks + width;
        self.blanks = 0;
        is_whole
    }
}

/// As much of a text as fits, with an ellipsis at its end.
fn cut(text: &str, width: usize) -> String {
    let mut left = width - 1;
    let mut shown = String::new();
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        shown.push(c);
    }
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;

    use super::*;

    const PLAIN: Screen = Screen { width: None, colour: false };

    fn rows() -> (Table, Vec<Vec<Cell>>) {
        let rows: Vec<Vec<Cell>> = [["1", "日本", "x"], ["1000", "a", ""]]
            .iter()
            .map(|row| row.iter().map(Cell::new).collect())
            .collect();
        let mut table = Table::new(&[">ID", "NAME", "DETAIL"]);
        table.fit(&rows);
        (table, rows)
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let (table, rows) = rows();
        assert_eq!(table.header(PLAIN), "  ID  NAME  DETAIL");
        assert_eq!(table.line(&rows[0], PLAIN), "   1  日本  x");
        assert_eq!(table.line(&rows[1], PLAIN), "1000  a", "no blanks at the end");
    }

    #[test]
    fn lines_are_cut_to_the_terminal() {
        let (table, rows) = rows();
        let at = |width| Screen { width: Some(width), colour: false };
        assert_eq!(table.header(at(13)), "  ID  NAME  …");
        assert_eq!(table.header(at(12)), "  ID  NAME …");
        assert_eq!(table.header(at(10)), "  ID  NAME");
        assert_eq!(table.line(&rows[0], at(9)), "   1  日…");
        assert_eq!(table.line(&rows[0], at(1)), "…");
        for width in 1..30 {
            assert!(table.header(at(width)).width() <= width);
        }
    }

    #[test]
    fn colours_take_no_room_and_are_left_out_where_they_are_not_wanted() {
        let table = Table::new(&["CODE", "NEXT"]);
        let row = [Cell::styled("OK", AnsiColor::Green.on_default()), Cell::new("x")];
        assert_eq!(table.line(&row, PLAIN), "OK    x");
        let coloured = table.line(&row, Screen { width: None, colour: true });
        assert_eq!(coloured, "\u{1b}[32mOK\u{1b}[0m    x");
    }

    #[test]
    fn what_is_hostile_is_harmless() {
        let table = Table::new(&["A"]);
        assert_eq!(table.line(&[Cell::new("\u{1b}]0;owned\u{7}\n")], PLAIN), r"\u{1b}]0;owned\u{7}\n");
    }
}
