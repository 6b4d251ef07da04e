//! The table of a storm.

use std::fmt::Write as _;

use super::super::table::{Cell, Column, Table};
use crate::bench::{Saturation, SaturationReason, StormComparison, StormReport, StormResult, StormStep};
use crate::terminal::format;
use crate::terminal::screen::Screen;

/// Minimum width of the kinds of failures. On a narrower screen they are shown below their rows.
const MIN_FAILURES_WIDTH: usize = 20;

/// Text of a cell without a value.
const NONE: &str = "-";

/// Returns the table of the steps, lines about the idle node and the saturation, and the comparison
/// of several endpoints.
pub(super) fn text(report: &StormReport, screen: Screen) -> String {
    let endpoints = report.endpoints();
    let is_comparison = endpoints.len() > 1;
    let columns = [
        Column::numeric("RATE"),
        Column::text("ENDPOINT").omit_empty(),
        optional_if(is_comparison, Column::numeric("OFFERED")),
        Column::numeric("SERVED"),
        Column::numeric("FAILED"),
        Column::numeric("CPU"),
        Column::numeric("CPU/SERVED"),
        Column::numeric("P50"),
        optional_if(is_comparison, Column::numeric("P90")),
        Column::numeric("P99"),
        Column::text("FAILURES").omit_empty(),
    ];
    let mut steps: Vec<(&str, &StormStep)> = Vec::new();
    for endpoint in endpoints {
        let name = if is_comparison { endpoint.name.as_str() } else { "" };
        steps.extend(endpoint.steps.iter().map(|step| (name, step)));
    }
    // The endpoints keep their order in each step.
    steps.sort_by_key(|(_, step)| step.rate);
    let rows: Vec<Vec<Cell>> = steps.into_iter().map(|(name, step)| row(name, step)).collect();
    let mut text = Table::new(columns, screen).render_complete(&rows, MIN_FAILURES_WIDTH);
    text.push('\n');
    if let Some(percent) = report.idle_cpu_percent {
        let _ = writeln!(text, "the idle node uses {percent:.1} % of CPU, which CPU/SERVED excludes");
    }
    for endpoint in endpoints {
        let nonzero: usize = endpoint.steps.iter().map(|step| step.nonzero_exits).sum();
        if nonzero > 0 {
            let served: usize = endpoint.steps.iter().map(|step| step.served).sum();
            let name = if is_comparison { format!("{}: ", endpoint.name) } else { String::new() };
            let _ = writeln!(text, "{name}{nonzero} of {served} commands exited with another code than 0");
        }
    }
    text.extend(endpoints.iter().map(|endpoint| saturation(report, endpoint)));
    text + &comparison(endpoints)
}

fn optional_if(is_optional: bool, column: Column) -> Column {
    if is_optional { column.optional() } else { column }
}

fn row(endpoint: &str, step: &StormStep) -> Vec<Cell> {
    let time = |time: Option<f64>| time.map_or_else(|| NONE.to_owned(), format::milliseconds);
    let failures = step.failures.iter().map(|failure| format!("{} {}", failure.count, failure.kind));
    let texts = [
        step.rate.to_string(),
        endpoint.to_owned(),
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

/// Returns the lines about the saturation of an endpoint.
fn saturation(report: &StormReport, endpoint: &StormResult) -> String {
    let name = &endpoint.name;
    let Some(Saturation { rate, reasons }) = &endpoint.saturation else {
        let most = endpoint.steps.iter().map(|step| step.rate).max().unwrap_or_default();
        return format!("{name} does not saturate up to a rate of {most} per second\n");
    };
    let step = endpoint.steps.iter().find(|step| step.rate == *rate);
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
    let most = if report.endpoints().len() > 1 {
        format!("  at most {:.1} calls were served per second\n", endpoint.max_served_per_second)
    } else {
        String::new()
    };
    format!("{name} saturates at a rate of {rate} per second:\n{}{most}", reasons.concat())
}

/// Returns the lines that compare the other endpoints with the first one, if there are others.
fn comparison(endpoints: &[StormResult]) -> String {
    let [first, others @ ..] = endpoints else { return String::new() };
    if others.is_empty() {
        return String::new();
    }
    let name = &first.name;
    let Some(rate) = first.max_unsaturated_rate() else {
        return format!("\nNo endpoint is compared with {name}, which saturates at the lowest rate\n");
    };
    let highest = if first.saturation.is_some() { ", the highest before it saturates" } else { "" };
    let mut text = format!("\nCompared with {name} at a rate of {rate} per second{highest}:\n");
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| NONE.to_owned(), |ratio| format!("{ratio:.2}"));
    for endpoint in others {
        let compared = endpoint.comparison.as_ref().map_or_else(
            || "saturated at that rate".to_owned(),
            |StormComparison { cpu_ratio, p50_ratio, .. }| {
                format!("{} of CPU/SERVED, {} of P50", ratio(*cpu_ratio), ratio(*p50_ratio))
            },
        );
        let _ = writeln!(text, "  {}: {compared}", endpoint.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshots::assert_screens;
    use super::*;
    use crate::bench::{FailureCount, StormResults};

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

    fn result(name: &str, steps: Vec<StormStep>, saturation: Option<Saturation>) -> StormResult {
        StormResult {
            name: name.to_owned(),
            endpoint: "unix:///run/a.sock".to_owned(),
            containers: vec!["c0ffee00".to_owned()],
            steps,
            saturation,
            max_served_per_second: 28.5,
            comparison: None,
        }
    }

    fn report(results: StormResults) -> StormReport {
        StormReport {
            command: vec!["true".to_owned()],
            timeout_ms: 1000,
            concurrency: 200,
            warm_up: 5,
            duration_per_step_ms: 10_000,
            idle_cpu_percent: Some(1.25),
            results,
        }
    }

    fn several(endpoints: Vec<StormResult>) -> StormReport {
        report(StormResults::Several { endpoints })
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
        let saturation = Some(Saturation { rate: 100, reasons });
        let report = report(StormResults::One(result("unix:///run/a.sock", steps, saturation)));
        assert_screens("storm", |screen| text(&report, screen));
    }

    #[test]
    fn a_storm_without_failures_has_no_column_for_them() {
        let mut only = step(5, 50, &[], 35.0);
        only.nonzero_exits = 0;
        let report = report(StormResults::One(result("unix:///run/a.sock", vec![only], None)));
        let shown = text(&report, Screen { width: None, colour: false, utf8: true });
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "RATE  OFFERED  SERVED  FAILED     CPU  CPU/SERVED     P50     P90     P99");
        assert_eq!(lines[1], "   5       50      50       0  12.3 %      28.0ms  35.0ms  52.5ms  70.0ms");
        let idle = "the idle node uses 1.2 % of CPU, which CPU/SERVED excludes";
        let saturation = "unix:///run/a.sock does not saturate up to a rate of 5 per second";
        assert_eq!(lines[2..], ["", idle, saturation]);
    }

    #[test]
    fn several_endpoints_of_a_storm_are_shown_by_rate_and_compared_with_the_first() {
        let saturation = |rate| Some(Saturation { rate, reasons: vec![SaturationReason::Served] });
        let runtime = vec![step(1, 10, &[], 40.0), step(100, 1000, &[("timeout", 700)], 900.0)];
        let coalesced = vec![step(1, 10, &[], 40.0), step(100, 1000, &[], 41.0)];
        let mut direct = vec![step(1, 10, &[], 4.0), step(100, 1000, &[], 4.1)];
        for step in &mut direct {
            step.nonzero_exits = 0;
        }
        let limited = vec![step(1, 10, &[("RESOURCE_EXHAUSTED", 1)], 40.0)];
        let comparison =
            |cpu_ratio, p50_ratio| Some(StormComparison { rate: 1, cpu_ratio: Some(cpu_ratio), p50_ratio });
        let report = several(vec![
            result("runtime", runtime, saturation(100)),
            StormResult { comparison: comparison(0.978, Some(1.0)), ..result("coalesced", coalesced, None) },
            StormResult { comparison: comparison(0.0512, None), ..result("direct", direct, None) },
            result("limited", limited, saturation(1)),
        ]);
        assert_screens("storm_of_several_endpoints", |screen| text(&report, screen));
    }

    #[test]
    fn endpoints_are_not_compared_with_one_that_is_always_saturated() {
        let saturation = Some(Saturation { rate: 1, reasons: vec![SaturationReason::Served] });
        let failing = result("runtime", vec![step(1, 10, &[("timeout", 9)], 40.0)], saturation);
        let report = several(vec![failing, result("direct", vec![step(1, 10, &[], 4.0)], None)]);
        let shown = text(&report, Screen { width: None, colour: false, utf8: true });
        let last = "\n\nNo endpoint is compared with runtime, which saturates at the lowest rate\n";
        assert!(shown.ends_with(last), "{shown}");
    }
}
