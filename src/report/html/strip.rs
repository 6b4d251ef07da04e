//! A strip: the results of a probe over time.

use std::fmt::Write as _;
use std::time::Duration;

use super::page::Page;
use super::time::{Ticks, counted, exact_time};
use crate::report::axis::Axis;
use crate::report::lifecycle::{LifecycleEvent, LifecycleKind};
use crate::report::model::{Gap, Report};
use crate::report::probe::ProbeReport;
use crate::report::spans::{ResultKind, ResultSpan};

/// Height of a strip, in the units of its drawing.
const HEIGHT: usize = 16;

/// Maximum number of marks above a strip. Marks that are closer are left out.
const MAX_MARKS: f64 = 72.0;

/// The strips of a page, with the axis that they share.
#[derive(Debug)]
pub(super) struct Strips<'a> {
    report: &'a Report,
    axis: Axis,
    /// Number of columns of the report in each column of a strip.
    factor: usize,
}

impl<'a> Strips<'a> {
    /// Creates the strips of a report. A `factor` above 1 makes them coarser, and the page smaller.
    pub(super) fn new(report: &'a Report, factor: usize) -> Self {
        Self { report, axis: report.axis.coarser(factor), factor }
    }

    /// Returns the time that a column of a strip stands for.
    pub(super) fn column_width(&self) -> Duration {
        self.axis.width
    }

    /// Returns the width of a column of the legend, in columns of a strip on a wide screen.
    pub(super) fn legend_width(&self) -> f64 {
        columns(self.axis.columns) / 70.0
    }

    /// Writes the definitions to which the strips refer: patterns, gaps and ticks.
    pub(super) fn write_definitions(&self, page: &mut Page) {
        page.markup(
            r#"<svg class="defs" aria-hidden="true" focusable="false"><defs>
<pattern id="bands" width="4" height="4" patternUnits="userSpaceOnUse"><path class="bands" d="M0 1h4"/></pattern>
"#,
        );
        checks(page, self.axis.columns);
        hatch(page, "hatch", self.axis.columns, HEIGHT);
        page.markup(
            r#"<symbol id="kill" viewBox="0 0 10 10"><path d="M0 1h10L5 10z"/></symbol>
<symbol id="would" viewBox="0 0 10 10"><path d="M1 2h8L5 8.5z"/></symbol>
<symbol id="exit" viewBox="0 0 10 10"><path d="M1.5 2l7 7m0-7l-7 7"/></symbol>
<symbol id="start" viewBox="0 0 10 10"><path d="M5 1L1 9h8z"/></symbol>
<symbol id="oom" viewBox="0 0 10 10"><path d="M5 0l5 5-5 5-5-5z"/></symbol>
<g id="gaps">"#,
        );
        page.each(gap_spans(&self.report.gaps, &self.axis), |page, (x, width)| {
            page.markup(r#"<path class="gap" d=""#)
                .text(format_args!("M{x:.2} 0h{width:.2}v{HEIGHT}h-{width:.2}z"))
                .markup(r#""/>"#);
        })
        .markup(r#"</g><path id="ticks" d=""#)
        .each(Ticks::of_axis(&self.axis).shares(), |page, share| {
            page.text(format_args!("M{:.1} 0v{HEIGHT}", share * columns(self.axis.columns)));
        })
        .markup("\"/></defs></svg>\n");
    }

    /// Writes the strip of a probe with the times below it.
    pub(super) fn write_with_axis(&self, page: &mut Page, probe: &ProbeReport, ticks: &Ticks) {
        page.markup("<div class=\"track\">");
        self.write_marks(page, probe);
        self.write(page, probe);
        ticks.write(page);
        page.markup("</div>\n");
    }

    /// Writes the strip of a probe.
    pub(super) fn write(&self, page: &mut Page, probe: &ProbeReport) {
        page.markup(r#"<svg class="strip" viewBox="0 0 "#)
            .text(self.axis.columns)
            .markup(r#" 16" preserveAspectRatio="none" role="img" aria-label=""#)
            .text(alternative(probe))
            .markup(r##""><use href="#ticks"/>"##);
        for kind in ResultKind::ALL {
            let path = path(&self.columns(&probe.spans), kind);
            if !path.is_empty() {
                page.markup("<path class=\"").markup(class(kind)).markup("\" d=\"").text(path).markup("\"/>");
            }
        }
        if !self.report.gaps.is_empty() {
            page.markup(r##"<use href="#gaps"/>"##);
        }
        page.markup("</svg>");
    }

    /// Writes the marks above a strip: kills, exits and starts of the container.
    fn write_marks(&self, page: &mut Page, probe: &ProbeReport) {
        let is_its = |event: &&LifecycleEvent| event.is_about(&probe.namespace, &probe.pod, &probe.container);
        let mut events: Vec<&LifecycleEvent> = self.report.lifecycle.iter().filter(is_its).collect();
        // A kill stands for the exit and the start that follow it.
        events.sort_by_key(|event| rank(event.kind));
        let mut marks: Vec<(f64, LifecycleKind)> = Vec::new();
        for event in events {
            for time in [event.first_time, event.time] {
                let share = self.report.axis.share(time);
                let is_near = |(at, _): &(f64, LifecycleKind)| (share - at).abs() < 1.0 / MAX_MARKS;
                if time >= self.report.from && !marks.iter().any(is_near) {
                    marks.push((share, event.kind));
                }
            }
        }
        if marks.is_empty() {
            return;
        }
        page.markup("<div class=\"marks\" aria-hidden=\"true\">").each(marks, |page, (share, kind)| {
            let symbol = symbol(kind);
            page.markup("<svg class=\"")
                .markup(symbol)
                .markup("\" style=\"left:")
                .text(format_args!("{:.1}", share * 100.0))
                .markup("%\"><use href=\"#")
                .markup(symbol)
                .markup("\"/></svg>");
        });
        page.markup("</div>");
    }

    /// Returns the worst result in each column.
    fn columns(&self, spans: &[ResultSpan]) -> Vec<Option<ResultKind>> {
        let mut columns = vec![None; self.axis.columns];
        for span in spans {
            for column in span.columns(&self.report.axis) {
                let worst = &mut columns[column / self.factor];
                *worst = (*worst).max(Some(span.result));
            }
        }
        columns
    }
}

/// Returns the class of a result.
pub(super) fn class(kind: ResultKind) -> &'static str {
    match kind {
        ResultKind::Success => "ok",
        ResultKind::Slow => "sl",
        ResultKind::Late => "la",
        ResultKind::NotSent => "ns",
        ResultKind::NoResult => "nr",
        ResultKind::Error => "er",
        ResultKind::Failure => "fa",
        ResultKind::Timeout => "ti",
    }
}

/// Returns the middle of the columns with a result, in the units of the drawing.
pub(super) fn middle(kind: ResultKind) -> &'static str {
    match kind {
        ResultKind::Success => "13.5",
        ResultKind::Slow => "11",
        ResultKind::Late => "10",
        ResultKind::Error => "9",
        ResultKind::NotSent | ResultKind::NoResult | ResultKind::Failure | ResultKind::Timeout => "8",
    }
}

/// Returns the symbol of a change of a container.
pub(super) fn symbol(kind: LifecycleKind) -> &'static str {
    match kind {
        LifecycleKind::Killed => "kill",
        LifecycleKind::WouldBeKilled => "would",
        LifecycleKind::OutOfMemory => "oom",
        LifecycleKind::Exited | LifecycleKind::Stopped => "exit",
        LifecycleKind::Started => "start",
    }
}

/// Writes a pattern of squares that looks the same for any number of columns.
fn checks(page: &mut Page, width: usize) {
    let half = columns(width) / 320.0;
    page.markup("<pattern id=\"checks\" patternUnits=\"userSpaceOnUse\" width=\"")
        .text(format_args!("{:.3}", 2.0 * half))
        .markup("\" height=\"4\"><path class=\"checks\" d=\"")
        .text(format_args!("M0 0h{half:.3}v2H0zM{half:.3} 2h{half:.3}v2h-{half:.3}zM0 3.4h{half:.3}V4H0z"))
        .markup("\"/></pattern>\n");
}

/// Writes a pattern of diagonal lines that looks the same for any number of columns.
pub(super) fn hatch(page: &mut Page, id: &'static str, width: usize, height: usize) {
    let width = columns(width) / 160.0;
    let (half, height) = (width / 2.0, height / 2);
    page.markup("<pattern id=\"")
        .markup(id)
        .markup("\" patternUnits=\"userSpaceOnUse\" width=\"")
        .text(format_args!("{width:.3}"))
        .markup("\" height=\"")
        .text(height)
        .markup("\"><path class=\"hatch\" d=\"")
        .text(format_args!(
            "M0 {height}L{width:.3} 0H{half:.3}L0 {middle}zM{width:.3} {height}V{middle}L{half:.3} {height}z",
            middle = height / 2
        ))
        .markup("\"/></pattern>\n");
}

/// Returns the beginnings and widths of gaps, in columns. A gap is as wide as a column at least.
pub(super) fn gap_spans(gaps: &[Gap], axis: &Axis) -> Vec<(f64, f64)> {
    let all = columns(axis.columns);
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for gap in gaps {
        let (from, to) = (axis.share(gap.from) * all, axis.share(gap.to) * all);
        let (from, to) = (from.min(all - 1.0).max(0.0), to.max(from + 1.0).min(all));
        match spans.last_mut() {
            Some((start, width)) if from <= *start + *width => *width = width.max(to - *start),
            _ => spans.push((from, to - from)),
        }
    }
    spans
}

/// Returns the number of columns as a number of a drawing.
#[expect(clippy::cast_precision_loss, reason = "there are at most 289 columns")]
pub(super) fn columns(columns: usize) -> f64 {
    columns as f64
}

/// Returns the path through the columns with a result, at the height of that result.
fn path(columns: &[Option<ResultKind>], kind: ResultKind) -> String {
    let middle = middle(kind);
    let mut path = String::new();
    let (mut start, mut drawn) = (0, 0);
    for run in columns.chunk_by(|one, other| one == other) {
        let end = start + run.len();
        if run[0] == Some(kind) {
            let _ = if path.is_empty() {
                write!(path, "M{start} {middle}h{}", run.len())
            } else {
                write!(path, "m{} 0h{}", start - drawn, run.len())
            };
            drawn = end;
        }
        start = end;
    }
    path
}

/// Returns the text that stands for a strip.
fn alternative(probe: &ProbeReport) -> String {
    let results = &probe.results;
    let counts = ResultKind::ALL.into_iter().rev().filter(|kind| *kind != ResultKind::Success);
    let counts: Vec<String> = counts
        .filter(|kind| kind.count(results) > 0)
        .map(|kind| format!("{} × {}", kind.count(results), kind.text()))
        .collect();
    let is_failed = |span: &&ResultSpan| span.result >= ResultKind::Error;
    let first = probe.spans.iter().find(is_failed).map(|span| span.from);
    let last = probe.spans.iter().rev().find(is_failed).map(|span| span.to);
    let times = first
        .zip(last)
        .map(|(first, last)| format!("; between {} and {}", exact_time(first), exact_time(last)));
    let counts = if counts.is_empty() { "all succeeded".to_owned() } else { counts.join(", ") };
    format!("{}: {counts}{}", counted(results.attempts(), "attempt", "attempts"), times.unwrap_or_default())
}

fn rank(kind: LifecycleKind) -> u8 {
    match kind {
        LifecycleKind::Killed => 0,
        LifecycleKind::WouldBeKilled => 1,
        LifecycleKind::OutOfMemory => 2,
        LifecycleKind::Exited | LifecycleKind::Stopped => 3,
        LifecycleKind::Started => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_each_run_of_columns_once() {
        let (ok, bad) = (Some(ResultKind::Success), Some(ResultKind::Failure));
        let columns = [ok, ok, bad, None, ok, ok, ok, bad];
        assert_eq!(path(&columns, ResultKind::Success), "M0 13.5h2m2 0h3");
        assert_eq!(path(&columns, ResultKind::Failure), "M2 8h1m4 0h1");
        assert_eq!(path(&columns, ResultKind::Slow), "");
    }
}
