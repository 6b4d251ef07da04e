//! Rows: one per probe.

use std::collections::HashMap;
use std::time::Duration;

use super::live::LastResults;
use super::probe_key::ProbeKey;
use super::row_result::RowResult;
use super::strip::{StripMark, gap_marks, strip};
use crate::admin::api::{StatusContainer, StatusPod, StatusProbe};
use crate::history::json::milliseconds;
use crate::prober::EnforcementMode;
use crate::report::{LifecycleKind, Report};

/// The pods of a node now, with the results of the probes that probeshim runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentPods<'a> {
    /// Name of the enforcement mode.
    pub(crate) mode: &'a str,
    pub(crate) pods: &'a [StatusPod],
}

/// A probe with its results. A kill, or a kill that was not made, is counted for the probe that
/// caused it; a restart for each probe of the container.
#[derive(Clone, Debug)]
pub(crate) struct ProbeRow {
    pub(crate) key: ProbeKey,
    /// Index of the probe in the report; `None` if it has made no attempt in the period.
    pub(crate) index: Option<usize>,
    /// Place in the order from the worst probe to the best.
    pub(crate) rank: usize,
    pub(crate) handler: String,
    pub(crate) result: RowResult,
    pub(crate) strip: Vec<StripMark>,
    pub(crate) attempts: u32,
    pub(crate) failed: u32,
    pub(crate) p50: Option<Duration>,
    pub(crate) p99: Option<Duration>,
    /// Timeout without the 99th percentile of the latency, in milliseconds.
    pub(crate) margin_ms: Option<f64>,
    pub(crate) kills: u64,
    pub(crate) would_be_kills: u64,
    pub(crate) restarts: u64,
}

/// Returns a row for each probe of the report, and for each other probe of the current pods.
pub(crate) fn rows(
    report: Option<&Report>,
    now: Option<CurrentPods<'_>>,
    live: &LastResults,
) -> Vec<ProbeRow> {
    let mut current = now.map(current_probes).unwrap_or_default();
    let restarts = report.map(restarts).unwrap_or_default();
    let gaps = report.map(gap_marks).unwrap_or_default();
    let restarts_of = |key: &ProbeKey| {
        let container = [key.namespace.as_str(), key.pod.as_str(), key.container.as_str()];
        restarts.get(&container).copied().unwrap_or_default()
    };
    let mut rows: Vec<ProbeRow> = Vec::new();
    for (index, probe) in report.iter().flat_map(|report| &report.probes).enumerate() {
        let Some(report) = report else { continue };
        let key = ProbeKey::from_report(probe);
        let result = take_results(&mut current, &key)
            .or_else(|| live.get(&key).cloned())
            .or_else(|| RowResult::of_report(probe))
            .unwrap_or_default();
        let margin = |p99| probe.timeout.map(|timeout| milliseconds(timeout) - milliseconds(p99));
        rows.push(ProbeRow {
            index: Some(index),
            rank: index,
            handler: probe.handler.clone(),
            result,
            strip: strip(report, probe, &gaps),
            attempts: probe.results.attempts(),
            failed: probe.failed(),
            p50: probe.latency.p50,
            p99: probe.latency.p99,
            margin_ms: probe.latency.p99.and_then(margin),
            kills: probe.kills,
            would_be_kills: probe.would_be_kills,
            restarts: restarts_of(&key),
            key,
        });
    }
    let mut others: Vec<(ProbeKey, &StatusProbe)> = current.into_iter().collect();
    others.sort_by(|one, other| one.0.cmp(&other.0));
    // Probes of a kubelet that are in the report have another prober than those of the status.
    let known: std::collections::HashSet<[String; 4]> =
        rows.iter().map(|row| probe_names(&row.key)).collect();
    for (key, probe) in others {
        if known.contains(&probe_names(&key)) {
            continue;
        }
        rows.push(ProbeRow {
            index: None,
            rank: rows.len(),
            handler: if probe.action.is_empty() { probe.handler.clone() } else { probe.action.clone() },
            result: RowResult::of_status(probe).or_else(|| live.get(&key).cloned()).unwrap_or_default(),
            strip: gaps.clone(),
            attempts: 0,
            failed: 0,
            p50: None,
            p99: None,
            margin_ms: None,
            kills: u64::from(probe.killed),
            would_be_kills: u64::from(probe.would_have_killed),
            restarts: restarts_of(&key),
            key,
        });
    }
    rows
}

/// Removes the probes of a row, which has several if they have the same command and timeout.
/// Returns their worst result.
fn take_results(current: &mut HashMap<ProbeKey, &StatusProbe>, key: &ProbeKey) -> Option<RowResult> {
    let types = key.types().into_iter().map(|probe| ProbeKey { probe: probe.to_owned(), ..key.clone() });
    let probes: Vec<&StatusProbe> = types.filter_map(|key| current.remove(&key)).collect();
    let results = probes.into_iter().filter_map(RowResult::of_status);
    results.reduce(|one, other| if other.is_bad && !one.is_bad { other } else { one })
}

fn probe_names(key: &ProbeKey) -> [String; 4] {
    [&key.namespace, &key.pod, &key.container, &key.probe].map(Clone::clone)
}

/// Returns the probes of the newest containers of the newest sandboxes.
fn current_probes(now: CurrentPods<'_>) -> HashMap<ProbeKey, &StatusProbe> {
    let prober = if now.mode == EnforcementMode::Off.name() { "" } else { "probeshim" };
    let of_container = |pod: &StatusPod, container: &StatusContainer, probe: &StatusProbe| ProbeKey {
        namespace: pod.namespace.clone().unwrap_or_default(),
        pod: pod.name.clone().unwrap_or_else(|| pod.id.clone()),
        container: container.name.clone().unwrap_or_else(|| container.id.clone()),
        probe: probe.r#type.clone(),
        prober: prober.to_owned(),
        learned: None,
    };
    let containers = now.pods.iter().flat_map(|pod| pod.containers.iter().map(move |it| (pod, it)));
    // Later containers of the same name replace earlier ones.
    containers
        .filter(|(_, container)| container.state == "running")
        .flat_map(|(pod, container)| {
            container.probes.iter().map(move |probe| (of_container(pod, container, probe), probe))
        })
        .collect()
}

/// Returns the number of restarts of each container in the period.
fn restarts(report: &Report) -> HashMap<[&str; 3], u64> {
    let mut restarts = HashMap::new();
    for event in report.lifecycle.iter().filter(|event| event.kind == LifecycleKind::Started) {
        if event.is_restart {
            let container = [event.namespace.as_str(), event.pod.as_str(), event.container.as_str()];
            *restarts.entry(container).or_default() += event.count;
        }
    }
    restarts
}
