//! Makes a report from a period.

use std::time::SystemTime;

use super::axis::Axis;
use super::call::slowest_calls;
use super::latency::LatencyMap;
use super::lifecycle::lifecycle;
use super::model::{Gap, Report};
use super::pods::pods;
use super::probe::ProbeReport;
use super::selection::Selection;
use super::totals::Totals;
use crate::build_info;
use crate::history::timeline::{self, GapCause, Period};
use crate::lint::LintFinding;

/// Input of a report in addition to the period.
#[derive(Clone, Debug)]
pub struct ReportInput {
    /// Time at which the report is written.
    pub generated: SystemTime,
    /// Origin of the period: a running probeshim, or a directory of records.
    pub source: String,
    /// Pods to which the period is limited.
    pub selection: Selection,
    /// Findings of the lints about the period, the worst first.
    pub findings: Vec<LintFinding>,
}

/// Returns the report about a period.
#[must_use]
pub fn report(period: &Period, input: ReportInput) -> Report {
    let ReportInput { generated, source, selection, findings } = input;
    let axis = Axis::of_period(period);
    let lifecycle = lifecycle(&period.events);
    let mut probes: Vec<ProbeReport> =
        period.probes.iter().map(|probe| ProbeReport::new(probe, &axis, &lifecycle)).collect();
    probes.sort_by_key(|probe| std::cmp::Reverse(probe.badness()));
    Report {
        version: build_info::full_version().to_owned(),
        generated,
        source,
        from: period.from,
        to: period.to,
        axis,
        empty_because: probes.is_empty().then(|| empty_reason(period, &selection)),
        selection,
        totals: Totals::new(&probes, &lifecycle),
        findings,
        pods: pods(&probes, &lifecycle),
        probes,
        lifecycle,
        latency: LatencyMap::of_period(period, &axis),
        slowest_calls: slowest_calls(period),
        gaps: period.gaps.iter().map(gap).collect(),
        node: period.node.clone(),
    }
}

fn gap(gap: &timeline::Gap) -> Gap {
    let (kind, cause) = match gap.cause {
        GapCause::NotRunning => ("not-running", "probeshim did not run".to_owned()),
        GapCause::NotRecorded => ("not-recorded", "there are no records".to_owned()),
        GapCause::Dropped(1) => ("dropped", "1 observation was dropped".to_owned()),
        GapCause::Dropped(count) => ("dropped", format!("{count} observations were dropped")),
        GapCause::ClockStep(seconds) if seconds < 0.0 => {
            ("clock-step", format!("the clock was set back by {:.1} s", -seconds))
        }
        GapCause::ClockStep(seconds) => {
            ("clock-step", format!("the clock was set forward by {seconds:.1} s"))
        }
    };
    Gap { from: gap.from, to: gap.to, kind: kind.to_owned(), cause }
}

/// Returns why a period has no probes.
fn empty_reason(period: &Period, selection: &Selection) -> String {
    let Selection { namespace, pod } = selection;
    let is_whole = |gap: &&timeline::Gap| gap.from <= period.from && gap.to >= period.to;
    match period.gaps.iter().find(is_whole).map(|gap| &gap.cause) {
        Some(GapCause::NotRunning) => return "probeshim did not run in this period.".to_owned(),
        Some(GapCause::NotRecorded) => return "There are no records of this period.".to_owned(),
        _ => {}
    }
    match (namespace, pod) {
        (_, Some(pod)) => format!("No probe of pod {pod} ran through probeshim in this period."),
        (Some(namespace), None) => {
            format!("No probe of a pod in namespace {namespace} ran through probeshim in this period.")
        }
        (None, None) => "No probe ran through probeshim in this period: no client executed an exec \
                         probe, and probeshim made no attempts itself."
            .to_owned(),
    }
}
