//! Head of the page: the period, the most important numbers, and the contents.

use super::page::Page;
use super::probes;
use super::strip::Strips;
use super::time::{counted, exact_time, number, span};
use crate::report::model::Report;
use crate::terminal::format::duration;

/// Returns the title of the page.
pub(super) fn title(report: &Report) -> String {
    let host = report.node.as_ref().map(|node| format!(" of {}", node.host)).unwrap_or_default();
    format!("Probes{host}, {} UTC", span(report.from, report.to))
}

/// Writes the head of the page.
pub(super) fn write_header(page: &mut Page, report: &Report, max_rows: usize) {
    page.markup("<header>\n<p class=\"brand\">probeshim report</p>\n<h1>Probes");
    if let Some(node) = &report.node {
        page.text(" of ").name(&node.host);
    }
    page.markup("</h1>\n<p class=\"period\">").text(span(report.from, report.to)).text(" UTC");
    let length = report.to.duration_since(report.from).unwrap_or_default();
    page.text(format_args!(" ({})", duration(length)));
    let selection = &report.selection;
    for (label, value) in [("namespace", &selection.namespace), ("pod", &selection.pod)] {
        if let Some(value) = value {
            page.text(", only ").text(label).text(" ").name(value);
        }
    }
    page.markup("</p>\n");
    if report.empty_because.is_none() {
        page.markup("<p class=\"lead\">").text(lead(report)).markup("</p>\n");
        tiles(page, report);
    }
    contents(page, report, max_rows);
    page.markup("</header>\n");
}

/// Writes the end of the page.
pub(super) fn write_footer(page: &mut Page, report: &Report, strips: &Strips, max_rows: usize) {
    page.markup("<footer>\n");
    if max_rows < usize::MAX {
        page.markup("<p>The lists of this page have at most ")
            .text(max_rows)
            .markup(" rows, because it would be too large with all of them. A report in JSON has all.</p>\n");
    }
    page.markup("<p>Times are in UTC. A column of a strip has ")
        .text(duration(strips.column_width()))
        .markup(
            " and shows the worst result in it. A percentile is the upper bound of a range of durations \
             that is 19 % wide. An attempt is slow if it took more than half of its timeout, more than \
             the slow threshold, or more than three times the median.</p>\n<p>Written by probeshim ",
        )
        .text(&report.version)
        .text(" at ")
        .text(exact_time(report.generated))
        .markup(".</p>\n</footer>\n");
}

/// Returns the most important facts in sentences.
fn lead(report: &Report) -> String {
    let totals = &report.totals;
    let mut sentences = vec![match (totals.probes, totals.failed_probes) {
        (0, _) => "No ExecSync belongs to a known probe.".to_owned(),
        (1, 0) => "The probe did not fail.".to_owned(),
        (1, _) => "The probe failed.".to_owned(),
        (all, 0) => format!("None of {all} probes failed."),
        (all, failed) => format!("{failed} of {all} probes failed."),
    }];
    if totals.failed_other_execs > 0 {
        let all = counted(totals.other_execs, "other exec", "other execs");
        sentences.push(format!("{} of {all} failed.", number(totals.failed_other_execs)));
    }
    for (count, one, several, end) in [
        (totals.kills, "kill was made", "kills were made", "because of a probe"),
        (totals.would_be_kills, "kill would have been made", "kills would have been made", "in another mode"),
        (totals.counts.slow, "attempt", "attempts", "took long"),
    ] {
        if count > 0 {
            sentences.push(format!("{} {end}.", counted(count, one, several)));
        }
    }
    sentences.join(" ")
}

fn tiles(page: &mut Page, report: &Report) {
    let totals = &report.totals;
    let time = |time: Option<_>| time.map_or_else(|| "–".to_owned(), duration);
    let bad = |count: u64, is_bad: bool| (number(count), is_bad && count > 0);
    page.markup("<dl class=\"tiles\">");
    for (name, (value, is_bad)) in [
        ("Attempts", bad(totals.counts.attempts, false)),
        ("Failures", bad(totals.counts.failures, true)),
        ("Timeouts", bad(totals.counts.timeouts, true)),
        ("Errors", bad(totals.counts.errors, true)),
        ("Kills", bad(totals.kills, true)),
        ("Restarts", bad(totals.restarts, true)),
        ("Slow", bad(totals.counts.slow, false)),
        ("p50", (time(totals.latency.p50), false)),
        ("p99", (time(totals.latency.p99), false)),
    ] {
        page.markup(if is_bad { "<div class=\"bad\"><dt>" } else { "<div><dt>" })
            .text(name)
            .markup("</dt><dd>")
            .text(value)
            .markup("</dd></div>");
    }
    page.markup("</dl>\n");
}

fn contents(page: &mut Page, report: &Report, max_rows: usize) {
    let has_probes = report.empty_because.is_none();
    let has_others = !probes::others(report, max_rows).is_empty();
    let has_execs = !probes::other_execs(report).is_empty();
    page.markup("<nav aria-label=\"Contents\"><ul>");
    for (target, name, is_there) in [
        ("findings", "What is wrong", true),
        ("worst", "Probes with problems", has_probes),
        ("restarts", "Kills and restarts", true),
        ("calls", "Slowest kept calls", has_probes),
        ("latency", "Latency", !report.latency.rows.is_empty()),
        ("gaps-title", "Gaps", !report.gaps.is_empty()),
        ("pods", "Pods", !report.pods.is_empty()),
        ("others", "Other probes", has_others),
        ("other-execs", "Other execs", has_execs),
        ("node", "Node and settings", true),
    ] {
        if is_there {
            page.markup("<li><a href=\"#").markup(target).markup("\">").markup(name).markup("</a></li>");
        }
    }
    page.markup("</ul></nav>\n");
}
