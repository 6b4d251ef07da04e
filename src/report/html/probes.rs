//! Probes: those with failures in detail, the others in a table.

use super::findings;
use super::page::Page;
use super::phases;
use super::strip::{Strips, class, middle, symbol};
use super::time::{Ticks, counted, number};
use crate::report::lifecycle::LifecycleKind;
use crate::report::model::Report;
use crate::report::probe::ProbeReport;
use crate::report::spans::ResultKind;
use crate::terminal::format::{self, duration};

/// Maximum number of probes in detail.
const MAX_DETAILED: usize = 24;

/// Heading and caption of a table of probes.
struct ProbeTable {
    heading: &'static str,
    caption: &'static str,
    /// Name of the rows that are left out.
    rows: &'static str,
}

/// Writes the probes with failures, kills or many slow attempts.
pub(super) fn write_worst(page: &mut Page, report: &Report, strips: &Strips, max_rows: usize) {
    let ticks = Ticks::of_axis(&report.axis);
    page.markup("<section aria-labelledby=\"worst\">\n<h2 id=\"worst\">Probes with problems</h2>\n");
    legend(page, strips);
    let worst = detailed(report, max_rows);
    if worst.is_empty() {
        page.markup("<p class=\"fine\">No probe failed, and none was slow.</p>\n");
    }
    page.each(worst, |page, probe| detail(page, report, probe, strips, &ticks));
    page.markup("</section>\n");
}

/// Writes the other probes.
pub(super) fn write_others(page: &mut Page, report: &Report, strips: &Strips, max_rows: usize) {
    let text = ProbeTable {
        heading: r#"<section aria-labelledby="others">
<h2 id="others">Other probes</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="others-caption"><table class="probes">
<caption id="others-caption">"#,
        caption: "Results and latencies of the other probes, the slowest first",
        rows: "probes",
    };
    table(page, &text, others(report, max_rows), strips, max_rows);
}

/// Writes the ExecSyncs that belong to no known probe.
pub(super) fn write_other_execs(page: &mut Page, report: &Report, strips: &Strips, max_rows: usize) {
    let text = ProbeTable {
        heading: r#"<section aria-labelledby="other-execs">
<h2 id="other-execs">Other execs</h2>
<p>ExecSyncs that belong to no known probe, such as commands of people.</p>
<div class="scroll" tabindex="0" role="region" aria-labelledby="execs-caption"><table class="probes">
<caption id="execs-caption">"#,
        caption: "Results and latencies of other execs, those with the most failures first",
        rows: "execs",
    };
    table(page, &text, other_execs(report), strips, max_rows);
}

fn table(page: &mut Page, text: &ProbeTable, probes: &[ProbeReport], strips: &Strips, max_rows: usize) {
    if probes.is_empty() {
        return;
    }
    page.markup(text.heading).markup(text.caption).markup(
        r#"</caption>
<thead><tr><th scope="col">Probe</th><th scope="col" class="wide">Results over time</th>
<th scope="col" class="num">Attempts</th><th scope="col" class="num">Failed</th><th scope="col" class="num">p50</th>
<th scope="col" class="num">p99</th><th scope="col" class="num">Timeout</th></tr></thead>
<tbody>
"#,
    );
    page.each(probes.iter().take(max_rows), |page, probe| {
        page.markup("<tr><th scope=\"row\">");
        title(page, probe);
        page.markup("</th><td>");
        strips.write(page, probe);
        page.markup("</td>");
        cell(page, number(probe.results.attempts()));
        cell(page, number(probe.failed()));
        for time in [probe.latency.p50, probe.latency.p99, probe.timeout] {
            cell(page, time.map_or_else(|| "–".to_owned(), duration));
        }
        page.markup("</tr>\n");
    })
    .markup("</tbody></table></div>\n");
    page.left_out(probes.len(), max_rows, text.rows);
    page.markup("</section>\n");
}

/// Writes a cell with a number.
pub(super) fn cell(page: &mut Page, text: impl std::fmt::Display) {
    page.markup("<td class=\"num\">").text(text).markup("</td>");
}

/// Returns the probes that are shown in detail: the first ones, which are the worst.
fn detailed(report: &Report, max_rows: usize) -> &[ProbeReport] {
    let probes = known(report);
    let healthy = probes.iter().position(ProbeReport::is_healthy);
    &probes[..healthy.unwrap_or(probes.len()).min(MAX_DETAILED).min(max_rows)]
}

/// Returns the probes that are not shown in detail.
pub(super) fn others(report: &Report, max_rows: usize) -> &[ProbeReport] {
    &known(report)[detailed(report, max_rows).len()..]
}

/// Returns the ExecSyncs that belong to no known probe, which follow the probes.
pub(super) fn other_execs(report: &Report) -> &[ProbeReport] {
    &report.probes[known(report).len()..]
}

/// Returns the probes without other ExecSyncs.
fn known(report: &Report) -> &[ProbeReport] {
    &report.probes[..report.probes.partition_point(ProbeReport::is_probe)]
}

fn title(page: &mut Page, probe: &ProbeReport) {
    match probe.learned() {
        None => page.markup("<b>").text(&probe.kind).markup("</b> "),
        Some(learned) => page
            .markup("<code>")
            .name(&learned.label())
            .markup("</code> by ")
            .name(&probe.prober)
            .text(" in "),
    };
    page.name(&probe.pod_name());
    page.markup(" <span class=\"container\">").name(&probe.container).markup("</span>");
}

fn detail(page: &mut Page, report: &Report, probe: &ProbeReport, strips: &Strips, ticks: &Ticks) {
    page.markup("<article class=\"probe\"><h3>");
    title(page, probe);
    page.markup("</h3>\n<p class=\"about\">");
    page.each(facts(probe), |page, fact| {
        page.markup("<span>").text(fact).markup("</span> ");
    });
    page.markup("</p>\n");
    strips.write_with_axis(page, probe, ticks);
    page.markup("<p class=\"command\"><code>").message(&probe.handler).markup("</code></p>\n");
    page.markup("<p class=\"about minor\">");
    page.each(settings(probe), |page, fact| {
        page.markup("<span>").text(fact).markup("</span> ");
    });
    page.markup("</p>\n");
    if let Some(phases) = &probe.mean_phases {
        phases::write(
            page,
            &format!("Mean phases of {}", counted(phases.calls, "call", "calls")),
            &phases.named().map(|(name, time)| (name, Some(time.as_secs_f64() * 1e3))),
        );
    }
    findings::calls(page, report, &probe.results.failed_calls);
    page.markup("<p class=\"query\"><code>").message(&query(probe)).markup("</code></p>\n</article>\n");
}

/// Returns the numbers of a probe, the most important first.
fn facts(probe: &ProbeReport) -> Vec<String> {
    let results = &probe.results;
    let mut facts = Vec::new();
    if probe.kills > 0 {
        facts.push(counted(probe.kills, "kill", "kills"));
    }
    if probe.would_be_kills > 0 {
        facts.push(counted(probe.would_be_kills, "would-be kill", "would-be kills"));
    }
    for (count, singular, plural) in [
        (results.failures, "failure", "failures"),
        (results.timeouts, "timeout", "timeouts"),
        (results.errors, "error", "errors"),
        (results.without_result(), "without a result", "without a result"),
        (results.not_sent, "answered by probeshim", "answered by probeshim"),
        (results.slow, "slow", "slow"),
        (results.late, "of them late", "of them late"),
    ] {
        if count > 0 {
            facts.push(counted(count, singular, plural));
        }
    }
    facts.push(format!("of {}", counted(results.attempts(), "attempt", "attempts")));
    if let (Some(p50), Some(p99)) = (probe.latency.p50, probe.latency.p99) {
        facts.push(format!("p50 {}, p99 {}", duration(p50), duration(p99)));
    }
    facts
}

/// Returns the settings of a probe, and the causes of its failures.
fn settings(probe: &ProbeReport) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(probe.period.map(|period| format!("every {}", duration(period))));
    facts.push(
        probe
            .timeout
            .map_or_else(|| "no timeout".to_owned(), |timeout| format!("timeout {}", duration(timeout))),
    );
    facts.extend(probe.failure_threshold.map(|threshold| format!("failure threshold {threshold}")));
    facts.push(format!("by {}", probe.prober));
    if !probe.causes.is_empty() {
        let causes: Vec<String> =
            probe.causes.iter().take(4).map(|it| format!("{} × {}", it.count, it.cause)).collect();
        facts.push(format!("causes: {}", causes.join(", ")));
    }
    facts
}

/// Returns the command that shows the failed calls of a probe.
fn query(probe: &ProbeReport) -> String {
    let args = ["probeshim", "calls", "--pod"].into_iter().map(str::to_owned);
    let names = [probe.pod_name(), "--container".to_owned(), probe.container.clone()];
    let selected = match probe.learned() {
        Some(learned) => ["--command".to_owned(), learned.command],
        // The label of a call that may belong to several probes is `ambiguous`.
        None if probe.kind.contains(" or ") => ["--probe".to_owned(), "ambiguous".to_owned()],
        None => ["--probe".to_owned(), probe.kind.clone()],
    };
    let args = args.chain(names).chain(selected).chain(["--failed".to_owned()]);
    format::command(&args.collect::<Vec<_>>())
}

fn legend(page: &mut Page, strips: &Strips) {
    // The patterns of a strip depend on the number of its columns.
    let width = strips.legend_width();
    page.markup("<ul class=\"legend\" aria-label=\"Legend of the strips\">");
    for kind in ResultKind::ALL {
        page.markup("<li><svg class=\"strip\" viewBox=\"0 0 ")
            .text(format_args!("{width:.2}"))
            .markup(" 16\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path class=\"")
            .markup(class(kind))
            .markup("\" d=\"M0 ")
            .markup(middle(kind))
            .text(format_args!("h{width:.2}"))
            .markup("\"/></svg> ")
            .text(kind.text())
            .markup("</li>");
    }
    page.markup("<li><span class=\"gapbox\" aria-hidden=\"true\"></span> gap: not observed</li>");
    for kind in [
        LifecycleKind::Killed,
        LifecycleKind::WouldBeKilled,
        LifecycleKind::OutOfMemory,
        LifecycleKind::Exited,
        LifecycleKind::Started,
    ] {
        let symbol = symbol(kind);
        page.markup("<li><span class=\"marks\" aria-hidden=\"true\"><svg class=\"")
            .markup(symbol)
            .markup("\"><use href=\"#")
            .markup(symbol)
            .markup("\"/></svg></span> ")
            .text(kind.text())
            .markup("</li>");
    }
    page.markup("</ul>\n");
}
