//! The results of a probe over time, one mark per column of the report's axis.

use crate::report::{LifecycleKind, ProbeReport, Report, ResultKind};

/// Content of a column of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StripMark {
    /// No attempt ended.
    Empty,
    /// Nothing, or not everything, is known.
    Gap,
    /// The worst result of the attempts.
    Result(ResultKind),
    /// The container would have been killed because of the probe.
    WouldBeKilled,
    /// The container was killed because of the probe.
    Killed,
}

/// Returns the marks of the columns with gaps, in which no attempt is known.
pub(super) fn gap_marks(report: &Report) -> Vec<StripMark> {
    let mut marks = vec![StripMark::Empty; report.axis.columns];
    for gap in report.gaps.iter().filter(|gap| gap.from < gap.to) {
        if let Some(columns) = marks.get_mut(report.axis.columns_of(gap.from, gap.to)) {
            columns.fill(StripMark::Gap);
        }
    }
    marks
}

/// Returns the strip of a probe. `gaps` are the marks of [`gap_marks`].
pub(super) fn strip(report: &Report, probe: &ProbeReport, gaps: &[StripMark]) -> Vec<StripMark> {
    let mut marks = gaps.to_vec();
    for span in &probe.spans {
        if let Some(columns) = marks.get_mut(span.columns(&report.axis)) {
            columns.fill(StripMark::Result(span.result));
        }
    }
    for event in &report.lifecycle {
        let mark = match event.kind {
            LifecycleKind::Killed => StripMark::Killed,
            LifecycleKind::WouldBeKilled => StripMark::WouldBeKilled,
            _ => continue,
        };
        if event.is_about(&probe.namespace, &probe.pod, &probe.container)
            && event.is_because_of(&probe.kind)
            && let Some(column) = marks.get_mut(report.axis.column(event.time))
            && *column != StripMark::Killed
        {
            *column = mark;
        }
    }
    marks
}
