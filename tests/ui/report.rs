//! The report in a browser: light and dark, on a desktop and a phone, with hostile names.

use std::fs;

use fixtures::{need, periods};
use probeshim::history::timeline::Period;
use probeshim::report::{ReportInput, Selection, html, report};

use crate::browser::{Browser, Examination};

#[test]
fn a_report_of_an_hour_opens_without_requests_messages_and_violations() {
    let found = need!(open(&periods::hour(), "report-hour"));
    found.assert_is_clean();
    assert_eq!(found.title, "Probes of node-1, 2026-11-26 23:00 – 2026-11-27 00:00 UTC");
    for text in ["shop/web-7d9f8c6b5-x2x9q", "1 kill", "probeshim explain 130", "probeshim did not run"] {
        assert!(found.text.contains(text), "{text}: {}", found.text);
    }
}

#[test]
fn a_report_of_a_day_of_200_probes_opens_without_requests_messages_and_violations() {
    let found = need!(open(&periods::day(), "report-day"));
    found.assert_is_clean();
}

#[test]
fn a_report_without_observations_says_why() {
    let found = need!(open(&periods::empty(), "report-empty"));
    found.assert_is_clean();
    assert!(found.text.contains("Nothing was observed. No probe ran through probeshim"), "{}", found.text);
}

#[test]
fn markup_in_names_and_commands_is_text_in_a_browser() {
    let text = r#"</bdi></title><script>alert(1)</script><img src="https://example.com/x" onerror=alert(1)>"#;
    let found = need!(open(&periods::hostile(text), "report-markup"));
    assert_shows(&found, text);
}

#[test]
fn control_characters_in_names_and_commands_are_visible_in_a_browser() {
    let found = need!(open(&periods::hostile("a\u{1b}[31mb\u{0}c\rd\u{9b}e"), "report-control"));
    assert_shows(&found, r"a\u{1b}[31mb\0c\rd\u{9b}e");
}

#[test]
fn marks_of_the_direction_of_writing_are_visible_in_a_browser() {
    let found = need!(open(&periods::hostile("abc\u{202e}gpj.exe\u{2067}\u{200f}x"), "report-direction"));
    assert_shows(&found, r"abc\u{202e}gpj.exe\u{2067}\u{200f}x");
}

/// Fails unless the text of a hostile period is shown wherever it occurs, as text.
fn assert_shows(found: &Examination, text: &str) {
    found.assert_is_clean();
    for place in ["pod-", "main-", "host-", "sh -c ", "Liveness probe failed: "] {
        assert!(found.text.contains(&format!("{place}{text}")), "{place}: {}", found.text);
    }
    assert!(found.title.contains(text), "{}", found.title);
    assert_eq!(found.handlers, [""; 0]);
    for element in ["script", "img", "iframe", "object", "link"] {
        assert!(!found.elements.iter().any(|name| name == element), "{element}");
    }
}

fn open(period: &Period, name: &str) -> Result<Examination, String> {
    let browser = Browser::find()?;
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    fs::write(&page, html(&report(period, input()))).unwrap();
    Ok(browser.examine(&page, name))
}

fn input() -> ReportInput {
    ReportInput {
        generated: periods::end(),
        source: "a fixture".to_owned(),
        selection: Selection::default(),
        findings: periods::findings(),
    }
}
