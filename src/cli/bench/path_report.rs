//! The table of a benchmark of both paths.

use super::super::table::{Cell, Column, Table};
use crate::bench::{self, BenchReport, PathResult};
use crate::terminal::format;
use crate::terminal::screen::Screen;

/// Returns the table, and a line with the totals of each path.
pub(super) fn text(report: &BenchReport, screen: Screen) -> String {
    let columns = [
        Column::text("PATH"),
        Column::text("PHASE"),
        Column::numeric("CALLS"),
        Column::numeric("P50"),
        Column::numeric("P90"),
        Column::numeric("P99"),
        Column::numeric("MAX"),
    ];
    let rows: Vec<Vec<Cell>> = report.ways.iter().flat_map(rows).collect();
    let mut text = Table::new(columns, screen).render(&rows);
    text.push('\n');
    text.extend(report.ways.iter().map(|way| summary(way, report.calls)));
    text
}

/// Returns the line with the totals of a path, and a line about calls without phases if there are
/// any.
fn summary(way: &PathResult, calls: usize) -> String {
    let (rate, cpu) = (way.calls_per_second, format::milliseconds(way.cpu_ms_per_call));
    let failed = if way.failed > 0 { format!(", {} failed", way.failed) } else { String::new() };
    let nonzero = match way.nonzero_exits {
        0 => String::new(),
        nonzero => format!("  {nonzero} of {calls} commands exited with another code than 0\n"),
    };
    let has_phases = way.phases.iter().any(|figures| ["start", "run"].contains(&figures.phase.as_str()));
    let untold = match calls.saturating_sub(way.explained) {
        _ if !has_phases => String::new(),
        0 => String::new(),
        untold => format!(
            "  {untold} calls were not matched to exec instances; start and run are those of all exec instances\n"
        ),
    };
    format!(
        "{}: {rate:.1} calls per second, {cpu} of processor time on the node per call{failed}\n{nonzero}{untold}",
        way.way
    )
}

fn rows(way: &PathResult) -> Vec<Vec<Cell>> {
    let row = |figures: &bench::PhaseStats| {
        let times = [figures.p50_ms, figures.p90_ms, figures.p99_ms, figures.max_ms];
        [Cell::new(&way.way), Cell::new(&figures.phase), Cell::new(figures.count.to_string())]
            .into_iter()
            .chain(times.map(|time| Cell::new(format::milliseconds(time))))
            .collect()
    };
    way.phases.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshots::assert_screens;
    use super::*;
    use crate::bench::PhaseStats;

    #[test]
    fn a_benchmark_of_failing_commands_says_how_many_and_mentions_only_phases_that_it_shows() {
        let figures = |phase: &str| PhaseStats {
            phase: phase.to_owned(),
            count: 20,
            p50_ms: 1.5,
            p90_ms: 2.0,
            p99_ms: 2.5,
            max_ms: 3.0,
        };
        let way = |way: &str, phases: &[&str]| PathResult {
            way: way.to_owned(),
            failed: 0,
            nonzero_exits: 5,
            calls_per_second: 480.0,
            cpu_ms_per_call: 1.2,
            explained: 0,
            phases: phases.iter().map(|phase| figures(phase)).collect(),
        };
        let report = BenchReport {
            container: "c0ffee00".to_owned(),
            command: vec!["false".to_owned()],
            calls: 20,
            concurrency: 1,
            ways: vec![way("direct", &["total"]), way("relay", &["total", "start", "run"])],
        };
        assert_screens("bench", |screen| text(&report, screen));
    }
}
