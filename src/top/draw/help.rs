//! The keys.

use ratatui::style::{Color, Style};

use super::page::Page;
use crate::admin::api::ProbeNames;
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

/// Draws the keys, the words of the filter, the marks of a strip, and the sources of the names of
/// probes: first if names are missing.
pub(super) fn help(page: &mut Page, names: Option<&ProbeNames>) {
    let missing = names.and_then(ProbeNames::describe_missing);
    if missing.is_some() {
        draw_names(page, names);
    }
    draw_keys(page);
    if missing.is_none() {
        draw_names(page, names);
    }
}

fn draw_names(page: &mut Page, names: Option<&ProbeNames>) {
    let Some(sources) = names.and_then(ProbeNames::describe_sources) else { return };
    page.heading("Names of probes");
    page.text(&format!("from: {sources}"), Style::new());
    if let Some(missing) = names.and_then(ProbeNames::describe_missing) {
        page.text(&missing, page.screen.style(Color::Yellow));
    }
}

fn draw_keys(page: &mut Page) {
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
