//! Tables: aligned, cut to the terminal's width, safe to show.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::human::harmless;
use super::screen::Screen;

/// Blanks between columns.
const GAP: usize = 2;

/// What the last column is to have at least, before columns that matter less are left out.
const ENOUGH: usize = 30;

/// Columns and how wide they have become; it is given rows a few at a time.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
}

/// One column. It is as wide as the widest of what has stood in it.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: &'static str,
    is_figure: bool,
    is_spare: bool,
    is_shown: bool,
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

impl Column {
    /// A column of words, which begin where the title begins.
    pub(super) fn words(title: &'static str) -> Self {
        Self { title, is_figure: false, is_spare: false, is_shown: true, width: title.width() }
    }

    /// A column of figures, which end where the title ends.
    pub(super) fn figures(title: &'static str) -> Self {
        Self { is_figure: true, ..Self::words(title) }
    }

    /// The same, to be left out where there is not room enough.
    pub(super) fn spare(self) -> Self {
        Self { is_spare: true, ..self }
    }
}

impl Table {
    pub(super) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect() }
    }

    /// Makes columns as wide as these rows need.
    pub(super) fn fit(&mut self, rows: &[Vec<Cell>]) {
        for row in rows {
            for (column, cell) in self.columns.iter_mut().zip(row) {
                column.width = column.width.max(cell.text.width());
            }
        }
    }

    /// Leaves out columns that can be spared, the first of them first, until the last column has room enough.
    pub(super) fn leave_out(&mut self, screen: Screen) {
        let Some(width) = screen.width else { return };
        while self.needed() > width {
            let Some(spare) = self.columns.iter_mut().find(|column| column.is_spare && column.is_shown)
            else {
                return;
            };
            spare.is_shown = false;
        }
    }

    /// The width with which every column is shown well.
    fn needed(&self) -> usize {
        let Some((last, others)) = self.columns.split_last() else { return 0 };
        let others = others.iter().filter(|column| column.is_shown).map(|column| column.width + GAP);
        others.sum::<usize>() + last.width.min(ENOUGH)
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
        for (column, cell) in self.columns.iter().zip(row).filter(|(column, _)| column.is_shown) {
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
        let mut table =
            Table::new([Column::figures("ID"), Column::words("NAME").spare(), Column::words("DETAIL")]);
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
    fn columns_that_can_be_spared_make_room_for_the_last() {
        let (mut table, rows) = rows();
        table.leave_out(Screen { width: Some(18), colour: false });
        assert_eq!(table.header(PLAIN), "  ID  NAME  DETAIL", "there is room");
        table.leave_out(Screen { width: Some(17), colour: false });
        assert_eq!(table.header(PLAIN), "  ID  DETAIL");
        assert_eq!(table.line(&rows[0], PLAIN), "   1  x");
    }

    #[test]
    fn colours_take_no_room_and_are_left_out_where_they_are_not_wanted() {
        let table = Table::new(["CODE", "NEXT"].map(Column::words));
        let row = [Cell::styled("OK", AnsiColor::Green.on_default()), Cell::new("x")];
        assert_eq!(table.line(&row, PLAIN), "OK    x");
        let coloured = table.line(&row, Screen { width: None, colour: true });
        assert_eq!(coloured, "\u{1b}[32mOK\u{1b}[0m    x");
    }

    #[test]
    fn what_is_hostile_is_harmless() {
        let table = Table::new([Column::words("A")]);
        assert_eq!(table.line(&[Cell::new("\u{1b}]0;owned\u{7}\n")], PLAIN), r"\u{1b}]0;owned\u{7}\n");
    }
}
