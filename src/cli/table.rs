//! Tables: aligned, cut to the terminal's width, safe to show.

use anstyle::Style;
use unicode_width::UnicodeWidthStr as _;

use super::line::Line;
use crate::terminal::harmless;
use crate::terminal::screen::Screen;

/// Blanks between columns.
const GAP: usize = 2;

/// Columns of the terminal that the last column gets before spare ones are left out.
const ENOUGH: usize = 30;

/// Columns and how wide they have become; it is given rows a few at a time.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    screen: Screen,
}

/// One column. It is as wide as the widest of what has stood in it.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: &'static str,
    is_figure: bool,
    is_spare: bool,
    is_shown: bool,
    typical: usize,
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
        Self { title, is_figure: false, is_spare: false, is_shown: true, typical: 0, width: title.width() }
    }

    /// A column of figures, which end where the title ends.
    pub(super) fn figures(title: &'static str) -> Self {
        Self { is_figure: true, ..Self::words(title) }
    }

    /// The same, of which most rows are as wide as this at most.
    pub(super) fn typically(self, text: &str) -> Self {
        Self { typical: text.width(), ..self }
    }

    /// The same, to be left out where there is not room enough.
    pub(super) fn spare(self) -> Self {
        Self { is_spare: true, ..self }
    }
}

impl Table {
    pub(super) fn new(columns: impl IntoIterator<Item = Column>, screen: Screen) -> Self {
        Self { columns: columns.into_iter().collect(), screen }
    }

    /// Makes columns as wide as most rows need, before any is there: so they do not jump while rows come in.
    pub(super) fn expect_rows(&mut self) {
        for column in &mut self.columns {
            column.width = column.width.max(column.typical);
        }
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
    pub(super) fn make_room(&mut self) {
        let Some(width) = self.screen.width else { return };
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

    /// The whole table of rows that are all there.
    pub(super) fn text(mut self, rows: &[Vec<Cell>]) -> String {
        self.fit(rows);
        self.make_room();
        std::iter::once(self.header())
            .chain(rows.iter().map(|row| self.line(row)))
            .map(|line| line + "\n")
            .collect()
    }

    /// The line of titles.
    pub(super) fn header(&self) -> String {
        let titles: Vec<Cell> =
            self.columns.iter().map(|column| Cell::styled(column.title, Style::new().bold())).collect();
        self.line(&titles)
    }

    /// The line of a row, without its end.
    pub(super) fn line(&self, row: &[Cell]) -> String {
        let mut line = Line::new(self.screen.width.unwrap_or(usize::MAX));
        for (column, cell) in self.columns.iter().zip(row).filter(|(column, _)| column.is_shown) {
            let padding = column.width.saturating_sub(cell.text.width());
            if column.is_figure {
                line.skip(padding);
            }
            let style = if self.screen.colour { cell.style } else { Style::new() };
            if !line.push(&cell.text, style) {
                break;
            }
            line.skip(GAP + if column.is_figure { 0 } else { padding });
        }
        line.into_text()
    }
}

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;

    use super::*;

    const PLAIN: Screen = Screen { width: None, colour: false };

    fn table(screen: Screen) -> (Table, Vec<Vec<Cell>>) {
        let rows: Vec<Vec<Cell>> = [["1", "日本", "x"], ["1000", "a", ""]]
            .iter()
            .map(|row| row.iter().map(Cell::new).collect())
            .collect();
        let columns = [Column::figures("ID"), Column::words("NAME").spare(), Column::words("DETAIL")];
        let mut table = Table::new(columns, screen);
        table.fit(&rows);
        (table, rows)
    }

    fn cut_at(width: usize) -> Screen {
        Screen { width: Some(width), colour: false }
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let (table, rows) = table(PLAIN);
        assert_eq!(table.header(), "  ID  NAME  DETAIL");
        assert_eq!(table.line(&rows[0]), "   1  日本  x");
        assert_eq!(table.line(&rows[1]), "1000  a", "no blanks at the end");
    }

    #[test]
    fn lines_are_cut_to_the_terminal() {
        for (width, header, line) in [
            (13, "  ID  NAME  …", "   1  日本  x"),
            (12, "  ID  NAME …", "   1  日本 …"),
            (10, "  ID  NAME", "   1  日本"),
            (9, "  ID  NA…", "   1  日…"),
            (1, "…", "…"),
        ] {
            let (table, rows) = table(cut_at(width));
            assert_eq!((table.header().as_str(), table.line(&rows[0]).as_str()), (header, line), "{width}");
        }
    }

    #[test]
    fn columns_that_can_be_spared_make_room_for_the_last() {
        let (mut wide, _) = table(cut_at(18));
        wide.make_room();
        assert_eq!(wide.header(), "  ID  NAME  DETAIL");
        let (mut narrow, rows) = table(cut_at(17));
        narrow.make_room();
        assert_eq!(narrow.header(), "  ID  DETAIL");
        assert_eq!(narrow.line(&rows[0]), "   1  x");
    }

    #[test]
    fn colours_take_no_room_and_are_left_out_where_they_are_not_wanted() {
        let row = [Cell::styled("OK", AnsiColor::Green.on_default()), Cell::new("x")];
        let line = |screen| Table::new(["CODE", "NEXT"].map(Column::words), screen).line(&row);
        assert_eq!(line(PLAIN), "OK    x");
        assert_eq!(line(Screen { width: None, colour: true }), "\u{1b}[32mOK\u{1b}[0m    x");
    }

    #[test]
    fn what_is_hostile_is_harmless() {
        let table = Table::new([Column::words("A")], PLAIN);
        assert_eq!(table.line(&[Cell::new("\u{1b}]0;owned\u{7}\n")]), r"\u{1b}]0;owned\u{7}\n");
    }
}
