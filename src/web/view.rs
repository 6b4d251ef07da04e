//! The overview: findings, pods, probes, latencies and the slowest calls of a period.

use std::collections::BTreeMap;
use std::time::SystemTime;

use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;

use super::answer::{PageError, json};
use super::period::with_period;
use super::query::{PageRequest, PageSelection};
use super::state::PageState;
use super::strip_text::mark;
use super::updates::UpdateId;
use crate::admin::Admin;
use crate::admin::api::{ProbeNames, StatusContainer, StatusPod};
use crate::history::json::{milliseconds, time};
use crate::history::timeline::{NodeFacts, Period};
use crate::lint::LintFinding;
use crate::overview::{CurrentPods, LastResults, ProbeKey, ProbeRow, rows};
use crate::report::{
    AttemptCounts, Axis, CauseCount, Gap, LatencyMap, LatencyPercentiles, LifecycleEvent, MeanPhases, Report,
    ReportInput, SlowCall, Totals, report,
};

/// Maximum number of starts, exits and kills in a view: the last ones.
const MAX_LIFECYCLE: usize = 500;

/// The overview of a period.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageView {
    version: String,
    from: String,
    to: String,
    /// Whether the period ends now.
    is_live: bool,
    /// Time that probeshim took for the view, in milliseconds.
    build_ms: f64,
    /// Id of the first update after the view.
    updates: String,
    /// Whether commands, output, messages of the runtime and query strings are shown.
    shows_commands: bool,
    axis: Axis,
    empty_because: Option<String>,
    totals: Totals,
    findings: Vec<LintFinding>,
    probes: Vec<PageProbe>,
    /// The pods of the node now; empty for a period in the past.
    pods: Vec<PagePod>,
    lifecycle: Vec<LifecycleEvent>,
    latency: LatencyMap,
    slowest_calls: Vec<SlowCall>,
    gaps: Vec<Gap>,
    node: Option<NodeFacts>,
    /// Sources of the names of probes, and containers without names.
    probe_names: ProbeNames,
    state: PageState,
}

/// A probe with its results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageProbe {
    #[serde(flatten)]
    probe: ProbeKey,
    handler: String,
    /// The last result in a few words; empty if it is unknown.
    result: String,
    /// The last result with its numbers explained.
    last_result: String,
    is_bad: bool,
    /// One character per column of the axis, see [`mark`].
    strip: String,
    #[serde(flatten)]
    counts: AttemptCounts,
    kills: u64,
    would_be_kills: u64,
    restarts: u64,
    #[serde(flatten)]
    latency: LatencyPercentiles,
    timeout_ms: Option<f64>,
    period_ms: Option<f64>,
    /// Failure threshold, or those of each type if the row has several.
    failure_threshold: Option<String>,
    mean_phases: Option<MeanPhases>,
    causes: Vec<CauseCount>,
    /// Ids of some of the failed calls.
    failed_calls: Vec<u64>,
}

/// A pod of the node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PagePod {
    namespace: String,
    name: String,
    /// Text of kubectl's column STATUS, or the pod phase.
    status: Option<String>,
    restarts: Option<u32>,
    containers: Vec<PageContainer>,
}

/// A container of the node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageContainer {
    name: String,
    state: String,
    /// Reason of the state, such as `CrashLoopBackOff`.
    reason: Option<String>,
    exit_code: Option<i32>,
    /// Number of restarts; the attempt of its CRI metadata for a container of a kubelet.
    restarts: Option<u32>,
}

/// Returns the overview of a period.
pub(super) async fn view(request: PageRequest) -> Result<Response, PageError> {
    let PageRequest { admin, headers, selection, .. } = request;
    let (from, to, started) = (selection.from, selection.to, Instant::now());
    // Taken before the period is read: an update that the view has too is better than none.
    let updates = UpdateId::now(&admin).to_string();
    let of_admin = admin.clone();
    let view = with_period(admin, from, to, move |period| {
        let mut view = build(&of_admin, &selection, period, updates);
        view.build_ms = milliseconds(started.elapsed());
        view
    });
    json(&headers, &view.await?)
}

fn build(admin: &Admin, selection: &PageSelection, mut period: Period, updates: String) -> PageView {
    // Lints examine all pods, because one pod can be slow because of others.
    let mut findings = selection.pods.lint(&period);
    findings.retain(|finding| selection.has_subject(&finding.subject));
    selection.apply(&mut period);
    let source = "a running probeshim".to_owned();
    let input =
        ReportInput { generated: SystemTime::now(), source, selection: selection.pods.clone(), findings };
    let report = report(&period, input);
    let shows_commands = admin.shows_commands();
    let pods = if selection.is_live { admin.pods(!shows_commands) } else { Vec::new() };
    let pods: Vec<StatusPod> = newest(pods).into_iter().filter(|pod| selection.has_pod(pod)).collect();
    let now = CurrentPods { mode: admin.mode().name(), pods: &pods };
    let mut rows = rows(Some(&report), selection.is_live.then_some(now), &LastResults::default());
    rows.retain(|row| selection.has_row(&row.key));
    let probes = rows.into_iter().map(|row| PageProbe::new(row, &report)).collect();
    let Report { version, axis, empty_because, totals, findings, mut lifecycle, latency, .. } = report;
    let superfluous = lifecycle.len().saturating_sub(MAX_LIFECYCLE);
    lifecycle.drain(..superfluous);
    PageView {
        version,
        from: time(period.from),
        to: time(period.to),
        is_live: selection.is_live,
        build_ms: 0.0,
        updates,
        shows_commands,
        axis,
        empty_because,
        totals,
        findings,
        probes,
        pods: pods.into_iter().map(PagePod::new).collect(),
        lifecycle,
        latency,
        slowest_calls: report.slowest_calls,
        gaps: report.gaps,
        node: report.node,
        probe_names: admin.probe_names(),
        state: PageState::of(admin),
    }
}

/// Returns the newest sandbox of each pod. Pods are ordered by namespace, name and age.
fn newest(pods: Vec<StatusPod>) -> Vec<StatusPod> {
    let mut newest: BTreeMap<(Option<String>, Option<String>, String), StatusPod> = BTreeMap::new();
    for pod in pods {
        let id = if pod.name.is_none() { pod.id.clone() } else { String::new() };
        newest.insert((pod.namespace.clone(), pod.name.clone(), id), pod);
    }
    newest.into_values().collect()
}

impl PageProbe {
    fn new(row: ProbeRow, report: &Report) -> Self {
        let probe = row.index.map(|index| &report.probes[index]);
        let results = probe.map(|probe| &probe.results);
        let ms = |duration: Option<std::time::Duration>| duration.map(milliseconds);
        Self {
            last_result: row.result.long_text().to_owned(),
            failure_threshold: row.failure_threshold(Some(report)),
            probe: row.key,
            handler: row.handler,
            result: row.result.text,
            is_bad: row.result.is_bad,
            strip: row.strip.into_iter().map(mark).collect(),
            counts: results.map(AttemptCounts::from).unwrap_or_default(),
            kills: row.kills,
            would_be_kills: row.would_be_kills,
            restarts: row.restarts,
            latency: probe.map(|probe| probe.latency).unwrap_or_default(),
            timeout_ms: ms(probe.and_then(|probe| probe.timeout)),
            period_ms: ms(probe.and_then(|probe| probe.period)),
            mean_phases: probe.and_then(|probe| probe.mean_phases),
            causes: probe.map(|probe| probe.causes.clone()).unwrap_or_default(),
            failed_calls: results.map(|results| results.failed_calls.clone()).unwrap_or_default(),
        }
    }
}

impl PagePod {
    fn new(pod: StatusPod) -> Self {
        let container = |container: StatusContainer| PageContainer {
            name: container.name.unwrap_or(container.id),
            state: container.state,
            reason: container.reason,
            exit_code: container.exit_code,
            restarts: container.restarts.or(container.attempt),
        };
        Self {
            namespace: pod.namespace.unwrap_or_default(),
            name: pod.name.unwrap_or(pod.id),
            status: pod.status.or(pod.phase),
            restarts: pod.restarts,
            containers: pod.containers.into_iter().map(container).collect(),
        }
    }
}
