//! The findings of the lints.

use ratatui::style::Style;

use super::page::Page;
use crate::top::app::TopApp;

/// Draws the findings, the worst first. Returns the number of lines above the chosen one.
pub(super) fn findings(page: &mut Page, app: &TopApp, chosen: usize) -> usize {
    let mut first = 0;
    page.heading("Findings, the worst first");
    if app.findings().is_empty() {
        page.text(if app.report.is_some() { "none" } else { "reading" }, Style::new());
    }
    for (place, finding) in app.findings().iter().enumerate() {
        if place == chosen && place > 0 {
            first = page.len() + 1;
        }
        page.line(Vec::new());
        let marker = if place == chosen { ">" } else { " " };
        let title =
            format!("{marker}{} {}: {}", finding.severity.name(), finding.lint, finding.subject.text());
        page.text(&title, page.screen.severity_style(finding.severity));
        page.text(&finding.sentence, Style::new());
        finding.evidence.iter().for_each(|line| page.text(&format!("- {line}"), Style::new()));
        page.text(&format!("What to do: {}", finding.remedy), Style::new());
        if let Some(last) = finding.calls.last() {
            let ids: Vec<String> = finding.calls.iter().map(u64::to_string).collect();
            page.text(&format!("Calls: {} (probeshim explain {last})", ids.join(", ")), Style::new());
        }
    }
    first
}
