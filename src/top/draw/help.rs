//! The keys.

use ratatui::style::Style;

use super::page::Page;
use crate::overview::StripMark;
use crate::top::column::SortColumn;
use crate::top::filter::FILTER_KEYS;

const KEYS: [(&str, &str); 9] = [
    ("j k arrows", "move; g and G: first and last; PgUp and PgDn: ten rows"),
    ("Enter", "open the probe: results, phases, explanation, calls"),
    ("/", "filter; Enter keeps it, Esc shows all rows"),
    ("s S", "sort by the next column; reverse the order"),
    ("l", "findings of the lints, the worst first"),
    ("p", "pause the exec probes of the container, after a confirmation"),
    ("r", "end a pause, after a confirmation"),
    ("? Esc", "this page; back"),
    ("q Ctrl-C Ctrl-Z", "quit; quit; stop until `fg`"),
];

/// Draws the keys, the words of the filter, and the marks of a strip.
pub(super) fn help(page: &mut Page) {
    page.heading("Keys");
    for (keys, effect) in KEYS {
        page.text(&format!("{keys:<16}{effect}"), Style::new());
    }
    let letters = SortColumn::ALL.map(|column| {
        let (key, name) = column.key_and_name();
        format!("{key} {name}")
    });
    page.text(&format!("sort by: {}", letters.join(", ")), Style::new());
    page.text(
        &format!("filter: any text, {}=, failed; all must match", FILTER_KEYS.join("=, ")),
        Style::new(),
    );
    page.heading("Marks");
    let screen = page.screen;
    let mark = |kind| screen.mark(StripMark::Result(kind)).0;
    let results = crate::report::ResultKind::ALL.map(|kind| format!("{} {}", mark(kind), kind.text()));
    let (gap, _) = screen.mark(StripMark::Gap);
    page.text(
        &format!("{}, K killed, k would be killed, {gap} not observed", results.join(", ")),
        Style::new(),
    );
    page.text(
        "KILL (2) is the number of kills that were not made. TRIES are attempts, RST are restarts.",
        Style::new(),
    );
}
