//! Problems, the worst first.

use super::page::Page;
use crate::lint::{LintFinding, LintSubject, Severity};
use crate::report::model::Report;

/// Maximum number of findings on the page.
const MAX_FINDINGS: usize = 40;

/// Maximum number of observations and of calls of a finding.
const MAX_EVIDENCE: usize = 6;

/// Writes the problems.
pub(super) fn write(page: &mut Page, report: &Report, max_rows: usize) {
    let shown = MAX_FINDINGS.min(max_rows);
    page.markup("<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">What is wrong</h2>\n");
    if report.findings.is_empty() {
        page.markup("<p class=\"fine\">The lints found nothing in this period.</p>\n");
    }
    page.each(report.findings.iter().take(shown), |page, finding| one(page, report, finding));
    page.left_out(report.findings.len(), shown, "findings");
    page.markup("</section>\n");
}

fn one(page: &mut Page, report: &Report, finding: &LintFinding) {
    page.markup(match finding.severity {
        Severity::Error => r#"<article class="finding error"><h3><span class="badge">"#,
        Severity::Warning => r#"<article class="finding warning"><h3><span class="badge">"#,
        Severity::Info => r#"<article class="finding info"><h3><span class="badge">"#,
    });
    page.text(finding.severity.name()).markup("</span> ").sentence(&finding.sentence).markup("</h3>\n");
    page.markup("<p class=\"about\">");
    subject(page, &finding.subject);
    page.markup("<span>lint <code>").text(finding.lint).markup("</code></span></p>\n");
    if !finding.evidence.is_empty() {
        page.markup("<ul>")
            .each(finding.evidence.iter().take(MAX_EVIDENCE), |page, evidence| {
                page.markup("<li>").sentence(evidence).markup("</li>");
            })
            .markup("</ul>\n");
    }
    if !finding.remedy.is_empty() {
        page.markup("<p class=\"remedy\"><strong>What to do:</strong> ")
            .sentence(&finding.remedy)
            .markup("</p>\n");
    }
    calls(page, report, &finding.calls);
    page.markup("</article>\n");
}

fn subject(page: &mut Page, subject: &LintSubject) {
    let LintSubject { namespace, pod, container, prober, .. } = subject;
    let probe = subject.probe_label();
    page.markup("<span>");
    if *subject == LintSubject::NODE {
        page.text("node");
    }
    let pod: Vec<&str> = namespace.iter().chain(pod).map(String::as_str).collect();
    if !pod.is_empty() {
        page.name(&pod.join("/"));
    }
    page.each(container, |page, container| {
        page.text(" ").name(container);
    })
    .each(&probe, |page, probe| {
        page.text(" ").name(probe);
    })
    .each(prober, |page, prober| {
        page.text(" (").name(prober).text(")");
    })
    .markup("</span> ");
}

/// Writes ids of calls, the first with the command that explains it. A call that the page explains
/// is a link.
pub(super) fn calls(page: &mut Page, report: &Report, ids: &[u64]) {
    if ids.is_empty() {
        return;
    }
    page.markup("<p class=\"calls\">Calls: ");
    let is_link = |id: &u64| report.slowest_calls.iter().any(|call| call.call.id == *id);
    let ids = &ids[..ids.len().min(MAX_EVIDENCE)];
    let first = ids.iter().position(|id| !is_link(id));
    page.each(ids.iter().enumerate(), |page, (at, id)| {
        if at > 0 {
            page.markup(", ");
        }
        if is_link(id) {
            page.markup("<a href=\"#call-").text(id).markup("\">").text(id).markup("</a>");
        } else if first == Some(at) {
            page.markup("<code>probeshim explain ").text(id).markup("</code>");
        } else {
            page.text(id);
        }
    });
    page.markup("</p>\n");
}
