//! The table of a storm.

use std::fmt::Write as _;

use super::super::table::{Cell, Column, Table};
use crate::bench::{Saturation, SaturationReason, StormReport, StormStep};
use crate::terminal::format;
use crate::terminal::screen::Screen;

/// Minimum width of the kinds of failures. On a narrower screen they are shown below their rows.
const MIN_FAILURES_WIDTH: usize = 20;

/// Text of a cell without a value.
const NONE: &str = "-";

/// Returns the table of the steps, and lines about the saturation.
pub(super) fn text(report: &StormReport, screen: Screen) -> String {
    let columns = [
        Column::numeric("RATE"),
        Column::numeric("OFFERED"),
        Column::numeric("SERVED"),
        Column::numeric("FAILED"),
        Column::numeric("CPU"),
        Column::numeric("CPU/SERVED"),
        Column::numeric("P50"),
        Column::numeric("P90"),
        Column::numeric("P99"),
        Column::text("FAILURES").omit_empty(),
    ];
    let rows: Vec<Vec<Cell>> = report.steps.iter().map(row).collect();
    let mut text = Table::new(columns, screen).render_complete(&rows, MIN_FAILURES_WIDTH);
    text.push('\n');
    let nonzero: usize = report.steps.iter().map(|step| step.nonzero_exits).sum();
    if nonzero > 0 {
        let served: usize = report.steps.iter().map(|step| step.served).sum();
        let _ = writeln!(text, "{nonzero} of {served} commands exited with another code than 0");
    }
    text + &saturation(report)
}

fn row(step: &StormStep) -> Vec<Cell> {
    let time = |time: Option<f64>| time.map_or_else(|| NONE.to_owned(), format::milliseconds);
    let failures = step.failures.iter().map(|failure| format!("{} {}", failure.count, failure.kind));
    let texts = [
        step.rate.to_string(),
        step.offered.to_string(),
        step.served.to_string(),
        step.failed.to_string(),
        step.cpu_percent.map_or_else(|| NONE.to_owned(), |percent| format!("{percent:.1} %")),
        time(step.cpu_ms_per_served),
        time(step.p50_ms),
        time(step.p90_ms),
        time(step.p99_ms),
        failures.collect::<Vec<_>>().join(", "),
    ];
    texts.into_iter().map(Cell::new).collect()
}

/// Returns the lines about the saturation.
fn saturation(report: &StormReport) -> String {
    let Some(Saturation { rate, reasons }) = &report.saturation else {
        let most = report.steps.iter().map(|step| step.rate).max().unwrap_or_default();
        return format!("{} does not saturate up to a rate of {most} per second\n", report.endpoint);
    };
    let step = report.steps.iter().find(|step| step.rate == *rate);
    let reason = |reason: &SaturationReason| match reason {
        SaturationReason::Served => {
            let (served, offered) = step.map_or((0, 0), |step| (step.served, step.offered));
            format!("{served} of {offered} calls were served, less than 99 %")
        }
        SaturationReason::Latency => {
            let p99 = step.and_then(|step| step.p99_ms).map_or_else(|| NONE.to_owned(), format::milliseconds);
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let timeout = format::milliseconds(report.timeout_ms as f64);
            format!("the 99th percentile of the latency, {p99}, exceeds the timeout of {timeout}")
        }
    };
    let reasons: Vec<String> = reasons.iter().map(|it| format!("  {}\n", reason(it))).collect();
    format!("{} saturates at a rate of {rate} per second:\n{}", report.endpoint, reasons.concat())
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshots::assert_screens;
    use super::*;
    use crate::bench::FailureCount;

    fn step(rate: u32, offered: usize, failures: &[(&str, usize)], latency_ms: f64) -> StormStep {
        let failed = failures.iter().map(|(_, count)| count).sum();
        let latency = |factor: f64| (offered > failed).then_some(latency_ms * factor);
        StormStep {
            rate,
            offered,
            served: offered - failed,
            failed,
            failures: failures
                .iter()
                .map(|&(kind, count)| FailureCount { kind: kind.to_owned(), count })
                .collect(),
            nonzero_exits: 3,
            lasted_ms: 10_000.0,
            cpu_percent: (offered > failed).then_some(12.34),
            cpu_ms_per_served: latency(0.8),
            p50_ms: latency(1.0),
            p90_ms: latency(1.5),
            p99_ms: latency(2.0),
            max_ms: latency(3.0),
        }
    }

    fn report(steps: Vec<StormStep>, saturation: Option<Saturation>) -> StormReport {
        StormReport {
            endpoint: "unix:///run/a.sock".to_owned(),
            containers: vec!["c0ffee00".to_owned()],
            command: vec!["true".to_owned()],
            timeout_ms: 1000,
            concurrency: 200,
            duration_per_step_ms: 10_000,
            steps,
            saturation,
        }
    }

    #[test]
    fn a_storm_is_shown_by_step_with_its_failures_and_its_saturation() {
        let failures: [&[_]; 2] =
            [&[("timeout", 700), ("not-sent", 12), ("UNAVAILABLE", 3)], &[("timeout", 2000)]];
        let steps = vec![
            step(1, 10, &[], 35.0),
            step(100, 1000, failures[0], 900.0),
            step(200, 2000, failures[1], 1.0),
        ];
        let reasons = vec![SaturationReason::Served, SaturationReason::Latency];
        let report = report(steps, Some(Saturation { rate: 100, reasons }));
        assert_screens("storm", |screen| text(&report, screen));
    }

    #[test]
    fn a_storm_without_failures_has_no_column_for_them() {
        let mut only = step(5, 50, &[], 35.0);
        only.nonzero_exits = 0;
        let shown = text(&report(vec![only], None), Screen { width: None, colour: false, utf8: true });
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "RATE  OFFERED  SERVED  FAILED     CPU  CPU/SERVED     P50     P90     P99");
        assert_eq!(lines[1], "   5       50      50       0  12.3 %      28.0ms  35.0ms  52.5ms  70.0ms");
        assert_eq!(lines[2..], ["", "unix:///run/a.sock does not saturate up to a rate of 5 per second"]);
    }
}
