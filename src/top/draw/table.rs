//! The table of probes.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::overview::{ProbeKey, ProbeRow};
use crate::terminal::{format, width};
use crate::top::app::TopApp;
use crate::top::column::SortColumn;
use crate::top::symbols::TopScreen;

/// Number of lines above the rows.
const TITLE_LINES: usize = 2;

/// Minimum and maximum width of the names of pods.
const POD_WIDTHS: (usize, usize) = (16, 60);

/// A cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableCell {
    Sorted(SortColumn),
    Strip,
}

/// Cells in their order, with the width and the importance of each. Cells of a low importance are
/// hidden if the terminal is narrow. The name of the pod takes the width that is left.
const CELLS: [(TableCell, usize, u8); 12] = [
    (TableCell::Sorted(SortColumn::Container), 12, 2),
    (TableCell::Sorted(SortColumn::Type), 9, 9),
    (TableCell::Sorted(SortColumn::Result), 9, 10),
    (TableCell::Strip, 8, 8),
    (TableCell::Sorted(SortColumn::Attempts), 5, 5),
    (TableCell::Sorted(SortColumn::Failed), 4, 7),
    (TableCell::Sorted(SortColumn::Median), 6, 3),
    (TableCell::Sorted(SortColumn::Percentile99), 6, 6),
    (TableCell::Sorted(SortColumn::Margin), 6, 6),
    (TableCell::Sorted(SortColumn::Kills), 4, 7),
    (TableCell::Sorted(SortColumn::Restarts), 3, 4),
    (TableCell::Sorted(SortColumn::Prober), 9, 1),
];

/// Title of the strip.
const STRIP_TITLE: &str = "LAST";

/// Maximum width of the strip, and of the container and the type of the probe.
const MAX_STRIP: usize = 30;
const MAX_NAME: usize = 24;

/// Widths that the contents of the visible rows need.
#[derive(Clone, Copy, Debug)]
struct NeededWidths {
    container: usize,
    probe_type: usize,
    /// Number of columns of the axis.
    strip: usize,
}

/// Returns the titles and the visible rows.
pub(super) fn table(app: &TopApp, screen: TopScreen, columns: usize, rows: usize) -> Vec<Line<'static>> {
    let (cells, pod) = layout(columns, NeededWidths::of(app));
    let has_container = cells.iter().any(|(cell, _)| *cell == TableCell::Sorted(SortColumn::Container));
    let mut lines = vec![order(app, screen), titles(app, screen, &cells, pod)];
    let room = rows.saturating_sub(TITLE_LINES).max(1);
    let place = app.place();
    // The selected row is in the middle, or as near to it as the ends of the table permit.
    let first = place.saturating_sub(room / 2).min(app.visible.len().saturating_sub(room));
    for (at, index) in app.visible.iter().enumerate().skip(first).take(room) {
        let row = &app.rows[*index];
        let name = if has_container { row.key.pod_name() } else { distinct_name(&app.rows, row) };
        lines.push(line(row, &name, at == place, screen, &cells, pod));
    }
    if app.visible.is_empty() {
        lines.push(Line::raw(match (app.rows.is_empty(), &app.report) {
            (false, _) => "no probe matches the filter; Esc shows all".to_owned(),
            (true, Some(report)) => {
                screen.harmless(report.empty_because.as_deref().unwrap_or("no probes are known"))
            }
            (true, None) => String::new(),
        }));
    }
    lines
}

impl NeededWidths {
    fn of(app: &TopApp) -> Self {
        let longest = |column: SortColumn, text: fn(&ProbeKey) -> &str| {
            let texts = app.visible.iter().map(|index| width(text(&app.rows[*index].key)));
            texts.chain([width(column.key_and_name().1)]).max().unwrap_or_default().min(MAX_NAME)
        };
        let columns = app.visible.iter().map(|index| app.rows[*index].strip.len());
        Self {
            container: longest(SortColumn::Container, |key| &key.container),
            // The longest type of a single probe has room at all times, so that a filter moves
            // nothing.
            probe_type: longest(SortColumn::Type, |key| &key.probe).max(width("readiness")),
            strip: columns.chain([width(STRIP_TITLE)]).max().unwrap_or_default().min(MAX_STRIP),
        }
    }

    /// Returns the width that a cell needs; `None` for a cell of constant width.
    fn of_cell(self, cell: TableCell) -> Option<usize> {
        match cell {
            TableCell::Strip => Some(self.strip),
            TableCell::Sorted(SortColumn::Container) => Some(self.container),
            TableCell::Sorted(SortColumn::Type) => Some(self.probe_type),
            TableCell::Sorted(_) => None,
        }
    }
}

/// Returns the cells that fit, with their widths, and the width of the name of the pod.
fn layout(columns: usize, needed: NeededWidths) -> (Vec<(TableCell, usize)>, usize) {
    let shrunk = |(cell, width, importance): (TableCell, usize, u8)| {
        (cell, needed.of_cell(cell).map_or(width, |needed| needed.min(width)), importance)
    };
    let mut cells = CELLS.map(shrunk).to_vec();
    // The marker of the selected row is the first column.
    let used =
        |cells: &[(TableCell, usize, u8)]| 1 + cells.iter().map(|(_, width, _)| width + 1).sum::<usize>();
    while used(&cells) + POD_WIDTHS.0 > columns
        && let Some((least, _)) = cells.iter().enumerate().min_by_key(|(_, (_, _, importance))| *importance)
    {
        cells.remove(least);
    }
    let mut left = columns.saturating_sub(used(&cells));
    // A wide terminal shows complete types and names of containers, and then more of the past. The
    // strip leaves room for long names of pods.
    let growing = [
        (TableCell::Sorted(SortColumn::Type), POD_WIDTHS.0),
        (TableCell::Sorted(SortColumn::Container), POD_WIDTHS.0),
        (TableCell::Strip, 2 * POD_WIDTHS.0),
    ];
    let is_complete = cells.len() == CELLS.len();
    for (growing, pod) in growing.into_iter().filter(|_| is_complete) {
        for (cell, width, _) in cells.iter_mut().filter(|(cell, _, _)| *cell == growing) {
            let more = needed.of_cell(*cell).unwrap_or(*width).saturating_sub(*width);
            let more = more.min(left.saturating_sub(pod));
            *width += more;
            left -= more;
        }
    }
    (cells.into_iter().map(|(cell, width, _)| (cell, width)).collect(), left.min(POD_WIDTHS.1))
}

/// Returns the line with the order, the filter and the number of rows.
fn order(app: &TopApp, screen: TopScreen) -> Line<'static> {
    let (_, name) = app.sort.key_and_name();
    let reversed = if app.is_reversed { ", reversed" } else { "" };
    let mut text = format!("{} of {} probes  sort: {name}{reversed}", app.visible.len(), app.rows.len());
    if !app.filter.is_empty() {
        text.push_str("  filter: ");
        text.push_str(&screen.harmless(&app.filter));
    }
    Line::styled(text, screen.style(Color::DarkGray))
}

fn titles(app: &TopApp, screen: TopScreen, cells: &[(TableCell, usize)], pod: usize) -> Line<'static> {
    let style = |column: Option<SortColumn>| {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if column == Some(app.sort) { style.add_modifier(Modifier::UNDERLINED) } else { style }
    };
    let mut spans =
        vec![Span::raw(" "), Span::styled(screen.fit("POD", pod, false), style(Some(SortColumn::Pod)))];
    for (cell, width) in cells {
        let (title, column) = match cell {
            TableCell::Sorted(column) => (column.key_and_name().1, Some(*column)),
            TableCell::Strip => (STRIP_TITLE, None),
        };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(screen.fit(title, *width, is_right(*cell)), style(column)));
    }
    Line::from(spans)
}

fn is_right(cell: TableCell) -> bool {
    use SortColumn::{Attempts, Failed, Kills, Margin, Median, Percentile99, Restarts};
    let numeric = [Attempts, Failed, Median, Percentile99, Margin, Kills, Restarts];
    matches!(cell, TableCell::Sorted(column) if numeric.contains(&column))
}

/// Returns the name of the pod of a row, with the container if the pod has probes of several.
fn distinct_name(rows: &[ProbeRow], row: &ProbeRow) -> String {
    let ProbeKey { namespace, pod, container, .. } = &row.key;
    let is_other = |other: &ProbeRow| {
        other.key.pod == *pod && other.key.namespace == *namespace && other.key.container != *container
    };
    let name = row.key.pod_name();
    if rows.iter().any(is_other) { format!("{name}/{container}") } else { name }
}

fn line(
    row: &ProbeRow,
    name: &str,
    is_selected: bool,
    screen: TopScreen,
    cells: &[(TableCell, usize)],
    pod: usize,
) -> Line<'static> {
    let marker = if is_selected { ">" } else { " " };
    let mut spans = vec![Span::raw(marker), Span::raw(screen.fit_name(name, pod))];
    for (cell, width) in cells {
        spans.push(Span::raw(" "));
        let TableCell::Sorted(column) = cell else {
            spans.extend(screen.strip(&row.strip, *width));
            continue;
        };
        let (text, colour) = content(row, *column);
        let text = screen.fit(&text, *width, is_right(*cell));
        spans.push(match colour {
            Some(colour) => screen.coloured(text, colour),
            None => Span::raw(text),
        });
    }
    let line = Line::from(spans);
    if is_selected { line.style(Style::new().add_modifier(Modifier::BOLD)) } else { line }
}

/// Returns the text of a cell, and its colour.
fn content(row: &ProbeRow, column: SortColumn) -> (String, Option<Color>) {
    let duration = |duration: Option<Duration>| duration.map(format::duration).unwrap_or_default();
    let red_if = |is_bad: bool| is_bad.then_some(Color::Red);
    let key = &row.key;
    match column {
        SortColumn::Worst => (String::new(), None),
        SortColumn::Pod => (key.pod_name(), None),
        SortColumn::Container => (key.container.clone(), None),
        SortColumn::Type => (key.probe.clone(), None),
        SortColumn::Result if row.result.text.is_empty() => ("-".to_owned(), None),
        SortColumn::Result => (row.result.text.clone(), red_if(row.result.is_bad)),
        SortColumn::Attempts => (row.attempts.to_string(), None),
        SortColumn::Failed => (row.failed.to_string(), red_if(row.failed > 0)),
        SortColumn::Median => (duration(row.p50), None),
        SortColumn::Percentile99 => (duration(row.p99), None),
        SortColumn::Margin => {
            (margin(row.margin_ms), red_if(row.margin_ms.is_some_and(|margin| margin < 0.0)))
        }
        SortColumn::Kills if row.kills == 0 && row.would_be_kills > 0 => {
            (format!("({})", row.would_be_kills), Some(Color::Magenta))
        }
        SortColumn::Kills => (row.kills.to_string(), (row.kills > 0).then_some(Color::Magenta)),
        SortColumn::Restarts => (row.restarts.to_string(), None),
        SortColumn::Prober => (key.prober.clone(), None),
    }
}

/// Formats a margin, which is negative if the latency exceeds the timeout.
pub(super) fn margin(margin: Option<f64>) -> String {
    match margin {
        None => String::new(),
        Some(margin) if margin < 0.0 => format!("-{}", format::milliseconds(-margin)),
        Some(margin) => format::milliseconds(margin),
    }
}
