//! The lines above and below the content.

use jiff::Timestamp;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::lint::Severity;
use crate::terminal::format::{counted, time_until};
use crate::top::app::{TopApp, TopView};
use crate::top::symbols::TopScreen;

/// Returns the two lines above the content: the node, and what needs attention.
pub(super) fn header(app: &TopApp, screen: TopScreen, columns: usize) -> Vec<Line<'static>> {
    if let Some(reason) = &app.disconnected {
        let text = screen.fit(&format!("disconnected, trying again: {reason}"), columns, false);
        return vec![
            Line::styled(text, screen.style(Color::Red).add_modifier(Modifier::BOLD)),
            attention(app, screen),
        ];
    }
    vec![node(app, screen, columns), attention(app, screen)]
}

fn node(app: &TopApp, screen: TopScreen, columns: usize) -> Line<'static> {
    let Some(status) = &app.status else { return Line::raw("probeshim top: connecting") };
    let upstream = &status.upstream;
    let runtime = match (&upstream.runtime, &upstream.version) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        _ => "runtime not ready".to_owned(),
    };
    let rate = app.call_rate.map_or_else(|| "?".to_owned(), |rate| format!("{rate:.1}"));
    let rest = format!("mode {}  {rate} calls/s  {} in flight", status.mode, status.calls.in_flight);
    let room = columns.saturating_sub("probeshim top    ".len() + rest.len());
    let runtime = screen.fit(&runtime, room.min(runtime.len()), false);
    Line::from(vec![TopScreen::bold("probeshim top  "), Span::raw(format!("{runtime}  {rest}"))])
}

/// Returns the numbers of findings, faults, pauses and missed observations.
fn attention(app: &TopApp, screen: TopScreen) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut add = |text: String, style: Style| {
        if !spans.is_empty() {
            spans.push(Span::raw("  "));
        }
        spans.push(Span::styled(text, style));
    };
    let mut has_findings = false;
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        let count = app.findings().iter().filter(|finding| finding.severity == severity).count();
        if count > 0 {
            add(counted(count, severity.name()), screen.severity_style(severity));
            has_findings = true;
        }
    }
    if app.report.is_none() {
        add("reading results".to_owned(), Style::new());
    } else if !has_findings {
        add("no findings".to_owned(), Style::new());
    }
    if let Some(status) = &app.status {
        let marked = screen.style(Color::Magenta);
        if !status.faults.is_empty() {
            add(counted(status.faults.len(), "fault"), marked);
        }
        if let Some(pause) = status.pauses.first() {
            let left = screen.harmless(&time_until(&pause.expires, Timestamp::now()));
            add(format!("{}, {left} left", counted(status.pauses.len(), "pause")), marked);
        }
        if !status.stuck.is_empty() {
            add(counted(status.stuck.len(), "stuck exec"), screen.style(Color::Red));
        }
        let unnamed = status.probe_names.unnamed_containers;
        if unnamed > 0 {
            let text = format!("no names in {}: ? shows what helps", counted(unnamed, "container"));
            add(text, screen.style(Color::Yellow));
        }
        let missed = status.calls.dropped.saturating_add(app.missed);
        if missed > 0 {
            add(format!("missed {missed}"), screen.style(Color::Red));
        }
    }
    Line::from(spans)
}

/// Returns the last line: the filter while it is written, a message, or the keys.
pub(super) fn footer(app: &TopApp, screen: TopScreen, columns: usize) -> Line<'static> {
    if app.dialog.is_none()
        && let Some(message) = &app.message
    {
        return Line::styled(screen.fit(message, columns, false), Style::new().add_modifier(Modifier::BOLD));
    }
    if app.is_filtering {
        let text = screen.harmless(&app.filter);
        return Line::from(vec![TopScreen::bold("/"), Span::raw(text), Span::raw("_")]);
    }
    let keys = match (&app.dialog, &app.view) {
        (Some(_), _) => "Esc cancel",
        (None, TopView::Table) => {
            "Enter open  / filter  s sort  l findings  p pause  r resume  ? help  q quit"
        }
        (None, TopView::Detail(_)) => "Esc back  j/k scroll  p pause  r resume  l findings  ? help  q quit",
        (None, TopView::Findings(_)) => "Esc back  j/k next/previous  Enter open its probe  ? help  q quit",
        (None, TopView::Help) => "Esc back  q quit",
    };
    Line::styled(screen.fit(keys, columns, false), screen.style(Color::DarkGray))
}
