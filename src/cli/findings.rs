//! Prints findings about a node, for `install` and `doctor`.

use crate::install::{Finding, FindingState};
use crate::terminal::harmless_text;
use crate::terminal::screen::print;

/// Returns a line per finding, and its remedy on the next line.
pub(super) fn findings_table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
    let lines = findings.iter().flat_map(|Finding { check, state, detail, remedy }| {
        let state = match state {
            FindingState::Ok => "ok",
            FindingState::Warning => "warning",
            FindingState::Failed => "failed",
        };
        let line = |state: &str, check: &str, text: &str| {
            format!("{state:<8} {check:<width$}  {}\n", harmless_text(text))
        };
        let remedy = remedy.as_ref().map(|remedy| line("", "", remedy));
        [line(state, check, detail)].into_iter().chain(remedy)
    });
    lines.collect()
}

/// Prints a line. A closed standard output is no reason to stop in the middle of a change.
pub(super) fn print_line(line: &str) {
    let _ = print(&format!("{}\n", harmless_text(line)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_follows_the_finding_in_the_column_of_the_details() {
        let finding = |check, state, remedy: Option<&str>| Finding {
            check,
            state,
            detail: "a detail".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let findings = [
            finding("disk", FindingState::Ok, None),
            finding("kubelet flags", FindingState::Failed, Some("do this")),
        ];
        assert_eq!(
            findings_table(&findings),
            "ok       disk           a detail\n\
             failed   kubelet flags  a detail\n                        do this\n"
        );
    }
}
