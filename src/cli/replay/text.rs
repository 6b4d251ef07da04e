//! The tables of a replay.

use std::fmt::Write as _;

use anstyle::AnsiColor;

use crate::capture::CaptureRuntime;
use crate::cli::calls::subject;
use crate::cli::table::{Cell, Column, Table};
use crate::replay::{
    CallDifference, LatencyPair, ReplayGroup, ReplayReport, ShortenedDistances, SkippedCalls,
};
use crate::terminal::format;
use crate::terminal::harmless_lines;
use crate::terminal::screen::Screen;

/// Maximum number of differences in the table: the first ones.
const MAX_DIFFERENCES: usize = 50;

/// Delay in milliseconds from which it is reported that calls were sent late.
const REPORTED_DELAY_MS: f64 = 10.0;

/// Returns the tables of latencies, phases and differences, and the totals.
pub(super) fn text(report: &ReplayReport, screen: Screen) -> String {
    let mut parts = Vec::new();
    if !report.groups.is_empty() {
        parts.push(latencies(report, screen));
    }
    if report.groups.iter().any(|group| group.phases.is_some()) {
        parts.push(phases(report, screen));
    }
    if !report.differences.is_empty() {
        parts.push(differences(report, screen));
    }
    parts.push(totals(report));
    parts.join("\n")
}

fn latencies(report: &ReplayReport, screen: Screen) -> String {
    let columns = [
        Column::text("METHOD"),
        Column::text("PROBE").omit_empty(),
        Column::numeric("CALLS"),
        Column::numeric("DIFFERENT"),
        Column::numeric("P50 RECORDED"),
        Column::numeric("REPLAYED"),
        Column::numeric("RATIO"),
        Column::numeric("P99 RECORDED").optional(),
        Column::numeric("REPLAYED").optional(),
        Column::numeric("RATIO").optional(),
    ];
    let row = |group: &ReplayGroup| {
        let mut row = names(group);
        row.push(Cell::new(group.calls.to_string()));
        row.push(match group.different {
            0 => Cell::new("0"),
            different => Cell::styled(different.to_string(), AnsiColor::Red.on_default()),
        });
        row.extend(pair(&group.latency.p50));
        row.extend(pair(&group.latency.p99));
        row
    };
    Table::new(columns, screen).render(&report.groups.iter().map(row).collect::<Vec<_>>())
}

fn phases(report: &ReplayReport, screen: Screen) -> String {
    let columns = [
        Column::text("METHOD"),
        Column::text("PROBE").omit_empty(),
        Column::numeric("CALLS"),
        Column::text("PHASE"),
        Column::numeric("MEAN RECORDED"),
        Column::numeric("REPLAYED"),
        Column::numeric("RATIO"),
    ];
    let rows = report.groups.iter().flat_map(|group| {
        let averages =
            group.phases.iter().flat_map(|phases| phases.averages.iter().map(move |mean| (phases, mean)));
        averages.map(move |(phases, mean)| {
            let mut row = names(group);
            row.push(Cell::new(phases.calls.to_string()));
            row.push(Cell::new(&mean.phase));
            row.extend(pair(&mean.mean));
            row
        })
    });
    Table::new(columns, screen).render(&rows.collect::<Vec<_>>())
}

fn names(group: &ReplayGroup) -> Vec<Cell> {
    vec![Cell::new(&group.method), Cell::new(group.probe.as_deref().unwrap_or_default())]
}

fn pair(pair: &LatencyPair) -> [Cell; 3] {
    let ratio = pair.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    [format::milliseconds(pair.recorded_ms), format::milliseconds(pair.replayed_ms), ratio].map(Cell::new)
}

fn differences(report: &ReplayReport, screen: Screen) -> String {
    let columns = [
        Column::numeric("ID"),
        Column::text("METHOD"),
        Column::text("RECORDED"),
        Column::text("REPLAYED"),
        Column::text("AFFECTED BY").omit_empty(),
        Column::text("SUBJECT"),
    ];
    let row = |difference: &CallDifference| {
        let CallDifference { id, method, pod, container, command, message, affected_by, .. } = difference;
        let result = |code: &str, exit: Option<i32>| match exit {
            Some(exit) => Cell::new(format!("{code}, exit {exit}")),
            None => Cell::new(code),
        };
        let about = [
            subject(pod.as_ref(), container.as_ref(), None),
            format::command(command),
            message.as_ref().map(|message| format!("({message})")).unwrap_or_default(),
        ];
        let about: Vec<String> = about.into_iter().filter(|part| !part.is_empty()).collect();
        vec![
            Cell::new(id.to_string()),
            Cell::new(method),
            result(&difference.recorded_code, difference.recorded_exit_code),
            result(&difference.replayed_code, difference.replayed_exit_code),
            Cell::new(affected_by.join(" ")),
            Cell::new(about.join(" ")),
        ]
    };
    let shown = &report.differences[..report.differences.len().min(MAX_DIFFERENCES)];
    let mut text = Table::new(columns, screen).render(&shown.iter().map(row).collect::<Vec<_>>());
    if shown.len() < report.differences.len() {
        let _ = writeln!(text, "and {} more; -o json has all", report.differences.len() - shown.len());
    }
    text
}

/// Returns the numbers of calls that were sent and that were not, and remarks about the capture.
fn totals(report: &ReplayReport) -> String {
    let runtime = |runtime: &CaptureRuntime| format!("{} {}", runtime.name, runtime.version);
    let recorded = report.recorded_runtime.as_ref().map_or_else(|| "unknown".to_owned(), runtime);
    let mut text = format!(
        "runtime: recorded {recorded}, replayed {}\n{} of {} sent, {} different\n",
        runtime(&report.replayed_runtime),
        report.sent,
        format::counted(report.calls, "call"),
        report.differences.len()
    );
    let SkippedCalls { not_read_only, hooks, no_request, command_redacted, not_found } = report.skipped;
    for (count, reason) in [
        (not_read_only, "they change the node, are streams, or have unknown methods"),
        (hooks, "they are, or may be, those of hooks; --hooks executes their commands again"),
        (no_request, "the capture has no request of them"),
        (command_redacted, "arguments of their commands were removed from the capture"),
        (not_found, "their pod or container is not on this node"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{} not sent: {reason}", format::counted(count, "call"));
        }
    }
    for unknown in &report.not_found {
        let _ = writeln!(text, "  {}: {}", unknown.name, format::counted(unknown.calls, "call"));
    }
    let ShortenedDistances { count, total_ms } = report.shortened;
    if count > 0 {
        let (count, total) = (format::counted(count, "distance"), format::milliseconds(total_ms));
        let _ = writeln!(text, "{count} of more than 60 s shortened, by {total} in all");
    }
    if report.late_ms >= REPORTED_DELAY_MS {
        let _ = writeln!(text, "calls were sent up to {} late", format::milliseconds(report.late_ms));
    }
    if report.missed > 0 {
        let _ = writeln!(text, "the capture misses {} calls, which arrived too fast", report.missed);
    }
    if report.cut_off {
        text.push_str("the capture has no end: it was cut off, and may miss calls\n");
    }
    harmless_lines(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::snapshots::assert_screens;
    use crate::replay::{PhaseAverage, PhaseAverages, ReplayLatency, UnknownTarget};

    #[test]
    fn a_replay_has_tables_of_latencies_phases_and_differences() {
        let pair = |recorded_ms: f64, replayed_ms: f64| LatencyPair {
            recorded_ms,
            replayed_ms,
            ratio: Some(replayed_ms / recorded_ms),
        };
        let group = |method: &str, probe: Option<&str>, phases| ReplayGroup {
            method: method.to_owned(),
            probe: probe.map(str::to_owned),
            calls: 12,
            latency: ReplayLatency { p50: pair(31.5, 28.25), p99: pair(120.0, 240.0) },
            different: usize::from(probe.is_some()),
            phases,
        };
        let mean = |phase: &str| PhaseAverage { phase: phase.to_owned(), mean: pair(10.0, 7.5) };
        let phases = PhaseAverages { calls: 11, averages: ["prepare", "run"].map(mean).into() };
        let runtime =
            |version: &str| CaptureRuntime { name: "containerd".to_owned(), version: version.to_owned() };
        let difference = CallDifference {
            id: 4711,
            method: "ExecSync".to_owned(),
            pod: None,
            container: None,
            command: vec!["cat".to_owned(), "/tmp/it's".to_owned()],
            recorded_code: "OK".to_owned(),
            replayed_code: "OK".to_owned(),
            recorded_exit_code: Some(0),
            replayed_exit_code: Some(1),
            message: None,
            affected_by: vec!["limit".to_owned()],
        };
        let other = CallDifference {
            id: 4712,
            method: "ContainerStatus".to_owned(),
            command: Vec::new(),
            replayed_code: "NOT_FOUND".to_owned(),
            recorded_exit_code: None,
            replayed_exit_code: None,
            message: Some("no such \u{1b}[31mcontainer".to_owned()),
            affected_by: Vec::new(),
            ..difference.clone()
        };
        let report = ReplayReport {
            upstream: "unix:///run/a.sock".to_owned(),
            recorded_runtime: Some(runtime("v2.0.1")),
            replayed_runtime: runtime("v2.2.0"),
            calls: 40,
            missed: 3,
            cut_off: true,
            sent: 24,
            late_ms: 12.5,
            shortened: ShortenedDistances { count: 2, total_ms: 3_722_000.0 },
            skipped: SkippedCalls {
                not_read_only: 10,
                hooks: 1,
                no_request: 2,
                command_redacted: 1,
                not_found: 3,
            },
            not_found: vec![UnknownTarget { name: "shop/web-0 main".to_owned(), calls: 3 }],
            groups: vec![
                group("ContainerStatus", None, None),
                group("ExecSync", Some("liveness"), Some(phases)),
            ],
            differences: vec![difference, other],
        };
        assert_screens("replay", |screen| text(&report, screen));
    }
}
