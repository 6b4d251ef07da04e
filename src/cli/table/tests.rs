//! Tests of tables.

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
fn a_complete_table_wraps_its_last_column_after_optional_columns_are_hidden() {
    let rows = [["web", "manifest", "failed 17 in a row, kills at 3"]];
    let rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.map(Cell::new).into()).collect();
    let shown = |width, min_last_width| {
        let columns = [Column::text("POD"), Column::text("SOURCE").optional(), Column::text("RESULT")];
        Table::new(columns, cut_at(width)).render_complete(&rows, min_last_width)
    };
    let whole = "POD  SOURCE    RESULT\nweb  manifest  failed 17 in a row, kills at 3\n";
    assert_eq!(shown(45, 30), whole);
    assert_eq!(shown(44, 30), "POD  RESULT\nweb  failed 17 in a row, kills at 3\n");
    assert_eq!(shown(25, 20), "POD  RESULT\nweb  failed 17 in a row,\n     kills at 3\n");
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
        let rows = [vec![Cell::new(&name), Cell::new("running")], vec![Cell::new("a"), Cell::new("gone")]];
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
    assert_eq!(width(&wide.line(&[whole])), MAX_TEXT_WIDTH, "without a terminal the last column has a limit");
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
    let lengths = prop_oneof![8 => Just(1_usize), 2 => 1..300_usize, 1 => Just(65_536), 1 => Just(1_000_000)];
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
