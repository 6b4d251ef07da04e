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
#[derive(Debug)]
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
        let Some(width) = self.screen.width else { return };
        while self.required_width() > width {
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

    /// Returns the width that all visible columns need.
    fn required_width(&self) -> usize {
        let mut visible = self.columns.iter().filter(|column| column.visible);
        let Some(last) = visible.next_back() else { return 0 };
        let others = visible.map(|column| column.width + COLUMN_GAP);
        others.sum::<usize>() + last.width.min(MIN_LAST_WIDTH)
    }

    /// Renders the table with all its rows.
    pub(super) fn render(mut self, rows: &[Vec<Cell>]) -> String {
        self.fit(rows);
        for (index, column) in self.columns.iter_mut().enumerate().filter(|(_, column)| column.omit_empty) {
            column.visible = rows.iter().any(|row| row.get(index).is_some_and(|cell| !cell.text.is_empty()));
        }
        self.shrink();
        std::iter::once(self.header())
            .chain(rows.iter().map(|row| self.line(row)))
            .map(|line| line + "\n")
            .collect()
    }

    /// Renders the table with all its rows. The texts of the last column are wrapped. They are
    /// shown below their rows if the column would be narrower than `min_width`.
    pub(super) fn render_wrapped(mut self, rows: &[Vec<Cell>], min_width: usize) -> String {
        let Some(screen_width) = self.screen.width else { return self.render(rows) };
        self.fit(rows);
        let before = self.columns.iter().rev().skip(1);
        let start = before.map(|column| column.width + COLUMN_GAP).sum::<usize>();
        let is_below = start + min_width > screen_width;
        let indent = if is_below { 2 * COLUMN_GAP } else { start };
        let mut text = if is_below { String::new() } else { self.header() + "\n" };
        for row in rows {
            let Some((last, others)) = row.split_last() else { continue };
            let wrapped = wrapped(&last.text, screen_width.saturating_sub(indent).max(min_width));
            let mut lines = wrapped.lines().map(str::trim_start);
            let first = if is_below { None } else { lines.next() };
            let others = others.iter().map(|cell| Cell { text: cell.text.clone(), style: cell.style });
            let row: Vec<Cell> = others.chain(first.map(|text| Cell::styled(text, last.style))).collect();
            text += &(self.line(&row) + "\n");
            for line in lines.filter(|line| !line.is_empty()) {
                let mut output = OutputLine::new(self.screen);
                output.skip(indent);
                output.push(line, if self.screen.colour { last.style } else { Style::new() });
                text += &(output.into_text() + "\n");
            }
        }
        if is_below {
            let mut titles = self.columns.clone();
            titles.pop();
            let header = Self { columns: titles, screen: self.screen }.header();
            text.insert_str(0, &(header + "\n"));
        }
        text
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

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;
    use proptest::prelude::*;

    use super::super::snapshots::assert_screens;
    use super::*;
    use crate::terminal::MAX_TEXT_WIDTH;

    const PLAIN: Screen = Screen { width: None, colour: false, utf8: true };

    fn table(screen: Screen) -> (Table, Vec<Vec<Cell>>) {
        let rows: Vec<Vec<Cell>> = [["1", "日本", "x"], ["1000", "a", ""]]
            .iter()
            .map(|row| row.iter().map(Cell::new).collect())
            .collect();
        let columns = [Column::numeric("ID"), Column::text("NAME").optional(), Column::text("DETAIL")];
        let mut table = Table::new(columns, screen);
        table.fit(&rows);
        (table, rows)
    }

    fn cut_at(width: usize) -> Screen {
        Screen { width: Some(width), colour: false, utf8: true }
    }

    #[test]
    fn table_columns_are_aligned_by_display_width() {
        let (table, rows) = table(PLAIN);
        assert_eq!(table.header(), "  ID  NAME  DETAIL");
        assert_eq!(table.line(&rows[0]), "   1  日本  x");
        assert_eq!(table.line(&rows[1]), "1000  a", "no blanks at the end");
    }

    #[test]
    fn table_lines_are_cut_to_the_width_of_the_terminal() {
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
    fn optional_table_columns_are_dropped_on_a_narrow_terminal() {
        let (mut wide, _) = table(cut_at(18));
        wide.shrink();
        assert_eq!(wide.header(), "  ID  NAME  DETAIL");
        let (mut narrow, rows) = table(cut_at(17));
        narrow.shrink();
        assert_eq!(narrow.header(), "  ID  DETAIL");
        assert_eq!(narrow.line(&rows[0]), "   1  x");
    }

    #[test]
    fn a_table_column_is_omitted_on_request_if_no_row_has_a_text_in_it() {
        let columns = || [Column::text("A"), Column::text("B").omit_empty(), Column::text("C")];
        let shown = |rows: &[[&str; 3]]| {
            let rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.map(Cell::new).into()).collect();
            Table::new(columns(), PLAIN).render(&rows)
        };
        assert_eq!(shown(&[["1", "", ""], ["2", "", ""]]), "A  C\n1\n2\n");
        assert_eq!(shown(&[["1", "", ""], ["2", "x", ""]]), "A  B  C\n1\n2  x\n");
    }

    #[test]
    fn table_colours_have_no_width_and_can_be_disabled() {
        let row = [Cell::styled("OK", AnsiColor::Green.on_default()), Cell::new("x")];
        let line = |screen| Table::new(["CODE", "NEXT"].map(Column::text), screen).line(&row);
        assert_eq!(line(PLAIN), "OK    x");
        assert_eq!(line(Screen { width: None, colour: true, utf8: true }), "\u{1b}[32mOK\u{1b}[0m    x");
    }

    #[test]
    fn a_table_is_cut_and_coloured_for_every_kind_of_screen() {
        let rows = [vec![
            Cell::new("1"),
            Cell::new("a column that narrow terminals leave out"),
            Cell::styled(
                "a text of 85.3µs that narrow terminals cut at the end of the line",
                AnsiColor::Red.on_default(),
            ),
        ]];
        let columns = || [Column::numeric("ID"), Column::text("NAME").optional(), Column::text("DETAIL")];
        assert_screens("table", |screen| Table::new(columns(), screen).render(&rows));
    }

    #[test]
    fn control_characters_in_table_cells_are_escaped() {
        let table = Table::new([Column::text("A")], PLAIN);
        assert_eq!(table.line(&[Cell::new("\u{1b}]0;owned\u{7}\n")]), r"\u{1b}]0;owned\u{7}\n");
    }

    #[test]
    fn a_long_name_is_cut_so_that_the_other_table_columns_stay_visible() {
        for (name, shown) in [
            ("p".repeat(65_535), "p".repeat(MAX_NAME_WIDTH - 1) + "…"),
            ("p".repeat(65_536), "p".repeat(MAX_NAME_WIDTH - 1) + "…"),
            ("p".repeat(1_000_000), "p".repeat(MAX_NAME_WIDTH - 1) + "…"),
            ("日".repeat(65_536), "日".repeat(MAX_NAME_WIDTH / 2 - 1) + "…"),
            ("p".repeat(MAX_NAME_WIDTH), "p".repeat(MAX_NAME_WIDTH)),
        ] {
            let rows =
                [vec![Cell::new(&name), Cell::new("running")], vec![Cell::new("a"), Cell::new("gone")]];
            let text = Table::new(["POD", "STATE"].map(Column::text), PLAIN).render(&rows);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), [shown.as_str(), "running"]);
            assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["a", "gone"]);
            // The last column gets the rest of the terminal's width.
            let rows = [vec![Cell::new(&name), Cell::new("m".repeat(1_000_000))]];
            let text = Table::new(["POD", "MESSAGE"].map(Column::text), cut_at(100)).render(&rows);
            let line = text.lines().nth(1).unwrap();
            assert!((99..=100).contains(&width(line)) && line.ends_with("mmm…"), "{line}");
        }
        let wide = Table::new([Column::text("MESSAGE")], PLAIN);
        let whole = Cell::new("m".repeat(1_000_000));
        assert_eq!(
            width(&wide.line(&[whole])),
            MAX_TEXT_WIDTH,
            "without a terminal the last column has a limit"
        );
    }

    /// Generates texts that a terminal treats specially, some of them long.
    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            any::<String>(),
            "[a-z]{0,40}",
            Just("日本語\u{3000}".to_owned()),
            Just("\u{200b}\u{200d}\u{feff}\u{301}\u{1160}\u{ad}".to_owned()),
            Just("\u{202e}שלום\u{2066}العربية\u{fdfd}".to_owned()),
            Just("👩\u{200d}👩\u{200d}👧\u{fe0f}🇩🇪".to_owned()),
            Just("\u{1b}]0;t\u{7}\u{9b}31m\r\n\t\0".to_owned()),
        ];
        let lengths =
            prop_oneof![8 => Just(1_usize), 2 => 1..300_usize, 1 => Just(65_536), 1 => Just(1_000_000)];
        // Repeats the piece until the text has about `length` characters.
        (piece, lengths).prop_map(|(piece, length)| piece.repeat(1 + length / piece.chars().count().max(1)))
    }

    fn widths() -> impl Strategy<Value = Option<usize>> {
        let some = prop_oneof![1..300_usize, Just(65_535), Just(65_536), Just(1_000_000), Just(usize::MAX)];
        proptest::option::of(some)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn a_table_has_one_line_per_row_for_any_text_and_width(
            cells in proptest::collection::vec(proptest::collection::vec(texts(), 3), 1..3),
            width in widths(),
            colour: bool,
        ) {
            let screen = Screen { width, colour, utf8: true };
            let rows: Vec<Vec<Cell>> =
                cells.iter().map(|row| row.iter().map(|text| Cell::styled(text, AnsiColor::Red.on_default())).collect()).collect();
            let columns = [Column::numeric("ID"), Column::text("NAME").optional(), Column::text("DETAIL")];
            let mut followed = Table::new(columns.clone(), screen);
            followed.expect_rows();
            followed.shrink();
            followed.fit(&rows);
            let lines = rows.iter().map(|row| followed.line(row)).collect::<Vec<_>>();
            let text = Table::new(columns, screen).render(&rows);
            prop_assert_eq!(text.lines().count(), 1 + rows.len(), "a line for each row");
            for line in text.lines().chain(lines.iter().map(String::as_str)) {
                let plain = line.replace("\u{1b}[31m", "").replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
                prop_assert!(!plain.contains(char::is_control));
                let most = width.unwrap_or(usize::MAX).min(2 * (MAX_NAME_WIDTH + COLUMN_GAP) + MAX_TEXT_WIDTH);
                prop_assert!(crate::terminal::width(&plain) <= most, "{} > {most}", crate::terminal::width(&plain));
            }
        }
    }
}
