//! Lints: what is wrong with the probes of a period, in words, with the numbers behind each
//! sentence and a remedy.
//!
//! [`lint`] is a pure function of a [`Period`]. Each file has the lints about one topic.

mod commands;
mod cost;
mod coverage;
mod errors;
mod facts;
mod failed_attempts;
mod failures;
mod finding;
#[cfg(test)]
mod fixture;
mod kills;
mod lifetimes;
mod load;
mod names;
mod output;
mod programs;
mod resources;
mod restarts;
mod runtime;
mod same_cause;
mod starts;
#[cfg(test)]
mod tests;
mod timing;

pub use finding::{LintFinding, LintSubject, Severity};
pub use names::LINTS;

use crate::history::timeline::Period;
use facts::PeriodFacts;

/// Returns what is wrong in a period, the worst first.
#[must_use]
pub fn lint(period: &Period) -> Vec<LintFinding> {
    findings(&PeriodFacts::new(period))
}

/// Returns what is wrong with selected objects, the worst first. All objects are examined, and a
/// problem that several containers have is a finding about each of them.
#[must_use]
pub fn lint_selected(period: &Period, is_selected: impl Fn(&LintSubject) -> bool) -> Vec<LintFinding> {
    let mut found = findings(&PeriodFacts { grouped: false, ..PeriodFacts::new(period) });
    found.retain(|finding| is_selected(&finding.subject));
    found
}

fn findings(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let topics = [
        kills::lint,
        restarts::lint,
        starts::lint,
        failures::lint,
        timing::lint,
        output::lint,
        resources::lint,
        load::lint,
        errors::lint,
        programs::lint,
        commands::lint,
        cost::lint,
        runtime::lint,
        coverage::lint,
    ];
    let mut findings: Vec<LintFinding> = topics.into_iter().flat_map(|topic| topic(facts)).collect();
    same_cause::merge(facts, &mut findings);
    LintFinding::sort(&mut findings);
    findings
}
