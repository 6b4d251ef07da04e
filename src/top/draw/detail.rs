//! The detail pane: a probe, its results over time, and its calls.

use jiff::Timestamp;
use ratatui::style::Style;
use ratatui::text::Span;

use super::page::Page;
use super::table::margin;
use crate::admin::api::{Call, ListedCall};
use crate::overview::{ProbeKey, StripMark, result_of};
use crate::report::{LifecycleEvent, LifecycleKind, ProbeReport, Report};
use crate::terminal::format;
use crate::top::app::TopApp;
use crate::top::detail::ProbeDetail;

/// Number of kills, exits and starts that are shown, the last ones.
const LIFECYCLE_EVENTS: usize = 5;

/// Columns of a phase without its bar.
const PHASE_COLUMNS: usize = 27;

/// Draws the detail pane.
pub(super) fn detail(page: &mut Page, app: &TopApp, detail: &ProbeDetail) {
    let key = &detail.key;
    page.heading(&format!("{} {} {} ({})", key.pod_name(), key.container, key.probe, key.prober));
    let row = app.rows.iter().find(|row| row.key == *key);
    let report = app.report.as_deref();
    let probe = row.and_then(|row| report?.probes.get(row.index?));
    if let Some(row) = row {
        page.text(&row.handler, Style::new());
        page.text(&format!("last result: {}", row.result.long_text()), Style::new());
    }
    if let (Some(report), Some(probe)) = (report, probe) {
        settings(page, probe, row.and_then(|row| row.failure_threshold(Some(report))));
        strip(page, report, probe, row.map(|row| row.strip.as_slice()).unwrap_or_default());
        numbers(page, probe, row.and_then(|row| row.margin_ms));
        lifecycle(page, report, key);
    } else {
        page.text("no attempt in the period", Style::new());
    }
    findings(page, app, key);
    explanation(page, detail);
    calls(page, detail);
    page.heading("The same on the command line");
    page.text(&command_line(key), Style::new());
}

fn settings(page: &mut Page, probe: &ProbeReport, threshold: Option<String>) {
    let duration = |duration: Option<_>| duration.map_or_else(|| "unknown".to_owned(), format::duration);
    let threshold = threshold.unwrap_or_else(|| "unknown".to_owned());
    let timeout = probe.timeout.map_or_else(|| "none".to_owned(), format::duration);
    let period = duration(probe.period);
    page.text(&format!("timeout {timeout}  period {period}  failure threshold {threshold}"), Style::new());
}

fn strip(page: &mut Page, report: &Report, probe: &ProbeReport, marks: &[StripMark]) {
    let width = format::duration(report.axis.width);
    page.heading(&format!("Results, {width} per column, until now"));
    let spans = page.screen.strip(marks, page.columns.min(marks.len()));
    page.line(spans);
    let kinds = crate::report::ResultKind::ALL.into_iter().filter(|kind| kind.count(&probe.results) > 0);
    let mut legend: Vec<Span<'static>> = Vec::new();
    for kind in kinds {
        let (character, style) = page.screen.mark(StripMark::Result(kind));
        legend.push(Span::styled(character.to_string(), style));
        legend.push(Span::raw(format!(" {} {}  ", kind.count(&probe.results), kind.text())));
    }
    for (character, count, text) in
        [('K', probe.kills, "killed"), ('k', probe.would_be_kills, "would be killed")]
    {
        if count > 0 {
            legend.push(Span::raw(format!("{character} {count} {text}  ")));
        }
    }
    page.line(legend);
}

fn numbers(page: &mut Page, probe: &ProbeReport, margin_ms: Option<f64>) {
    let duration = |duration: Option<_>| duration.map_or_else(|| "?".to_owned(), format::duration);
    page.heading("Latency");
    let [p50, p90, p99] = [probe.latency.p50, probe.latency.p90, probe.latency.p99].map(duration);
    let margin = margin_ms.map(|known| format!("  margin to the timeout {}", margin(Some(known))));
    page.text(&format!("p50 {p50}  p90 {p90}  p99 {p99}{}", margin.unwrap_or_default()), Style::new());
    if !probe.causes.is_empty() {
        let causes = probe.causes.iter().map(|cause| format!("{} {}", cause.cause, cause.count));
        page.text(
            &format!("slow or failed because of: {}", causes.collect::<Vec<_>>().join(", ")),
            Style::new(),
        );
    }
}

fn lifecycle(page: &mut Page, report: &Report, key: &ProbeKey) {
    let is_shown = |event: &&LifecycleEvent| {
        event.is_about(&key.namespace, &key.pod, &key.container) && event.kind != LifecycleKind::Stopped
    };
    let events: Vec<&LifecycleEvent> = report.lifecycle.iter().filter(is_shown).collect();
    if events.is_empty() {
        return;
    }
    page.heading("Kills, exits and starts of the container");
    for event in events.iter().rev().take(LIFECYCLE_EVENTS) {
        let time = Timestamp::try_from(event.time).map(|time| time.strftime("%H:%M:%S").to_string());
        let text = format!("{} {}: {}", time.unwrap_or_default(), event.kind.text(), event.message);
        page.text(&text, Style::new());
    }
}

fn findings(page: &mut Page, app: &TopApp, key: &ProbeKey) {
    let mut its = app.findings().iter().filter(|finding| key.is_subject(&finding.subject)).peekable();
    if its.peek().is_some() {
        page.heading("Findings");
    }
    for finding in its {
        let style = page.screen.severity_style(finding.severity);
        page.text(&format!("{} {}: {}", finding.severity.name(), finding.lint, finding.sentence), style);
        page.text(&format!("  What to do: {}", finding.remedy), Style::new());
    }
}

fn explanation(page: &mut Page, detail: &ProbeDetail) {
    let Some(explanation) = &detail.explanation else { return };
    page.heading(&format!("The slowest call, {}", explanation.call.id()));
    if let ListedCall::Ended(call) = &explanation.call {
        phases(page, call);
    }
    explanation.sentences.iter().for_each(|sentence| page.text(sentence, Style::new()));
}

/// Draws a bar for each known phase of a call, from its start to its end.
fn phases(page: &mut Page, call: &Call) {
    let Some(phases) = call.exec.as_ref().and_then(|exec| exec.phases.as_ref()) else { return };
    let room = page.columns.saturating_sub(PHASE_COLUMNS).max(10);
    let mut started = 0.0;
    for (name, time) in phases.named() {
        let Some(time) = time else { continue };
        let share = 100.0 * time / call.duration_ms.max(f64::MIN_POSITIVE);
        let label = format!("{name:<8}{:>8} {share:>5.1} %  ", format::milliseconds(time));
        let bar =
            if time > 0.0 { page.screen.bar(started, time, call.duration_ms, room) } else { String::new() };
        let style = page.screen.phase_style(name);
        page.line(vec![Span::raw(page.screen.encode(&label).into_owned()), Span::styled(bar, style)]);
        started += time;
    }
}

fn calls(page: &mut Page, detail: &ProbeDetail) {
    page.heading("Last calls");
    if detail.calls.is_empty() {
        let text = if detail.loaded { "none is recorded" } else { "reading" };
        page.text(text, Style::new());
    }
    let now = Timestamp::now();
    for call in detail.calls.iter().rev() {
        let result = result_of(call);
        let time = page.screen.fit(&format::recent_time(&call.start, now), 12, false);
        let duration = page.screen.fit(&format::milliseconds(call.duration_ms), 8, true);
        let affected: Vec<&str> = call
            .faults
            .iter()
            .map(|fault| fault.name.as_str())
            .chain(call.policy.iter().map(String::as_str))
            .collect();
        let text = page.screen.harmless(&format!("{} {}", result.text, affected.join(" ")));
        let style = if result.is_bad { page.screen.style(ratatui::style::Color::Red) } else { Style::new() };
        page.line(vec![Span::raw(format!("{:<8} {time} {duration}  ", call.id)), Span::styled(text, style)]);
    }
}

/// Returns the command that shows the calls of the probe.
fn command_line(key: &ProbeKey) -> String {
    let query = key.calls_query();
    let mut args = vec!["probeshim".to_owned(), "calls".to_owned()];
    for (flag, value) in [
        ("--pod", query.pod),
        ("--container", query.container),
        ("--probe", query.probe),
        ("--command", query.command),
        ("--timeout", query.timeout_ms.filter(|timeout| *timeout > 0).map(|ms| format!("{ms}ms"))),
        ("--peer", query.peer),
    ] {
        args.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    }
    format::command(&args)
}
