//! A pod of a report.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::lifecycle::{LifecycleEvent, LifecycleKind};

use super::probe::ProbeReport;
use super::serialize::name;

/// A pod with the numbers of its probes and of its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Namespace; empty, and null in JSON, if it is unknown.
    #[serde(serialize_with = "name")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Names of the containers.
    pub containers: Vec<String>,
    /// Number of probes.
    pub probes: usize,
    /// Number of attempts of the probes.
    pub attempts: u64,
    /// Number of failures, timeouts and errors.
    pub failed: u64,
    /// Number of attempts that were slow and did not fail.
    pub slow: u64,
    /// Number of other ExecSyncs, which belong to no known probe.
    pub other_execs: u64,
    /// Kills because of a probe.
    pub kills: u64,
    /// Starts of containers after an exit in the period.
    pub restarts: u64,
}

/// Returns the pods of probes and events, the worst first.
pub(super) fn pods(probes: &[ProbeReport], lifecycle: &[LifecycleEvent]) -> Vec<PodReport> {
    let mut pods: BTreeMap<(&str, &str), (PodReport, BTreeSet<&str>)> = BTreeMap::new();
    for probe in probes {
        let (pod, containers) = pods.entry((&probe.namespace, &probe.pod)).or_default();
        containers.insert(&probe.container);
        if !probe.is_probe() {
            // The command of a person makes no pod bad.
            pod.other_execs += u64::from(probe.results.attempts());
            continue;
        }
        pod.probes += 1;
        pod.attempts += u64::from(probe.results.attempts());
        pod.failed += u64::from(probe.failed());
        pod.slow += u64::from(probe.results.slow);
    }
    for event in lifecycle.iter().filter(|event| !event.pod.is_empty()) {
        let (pod, containers) = pods.entry((&event.namespace, &event.pod)).or_default();
        if !event.container.is_empty() {
            containers.insert(&event.container);
        }
        if event.kind == LifecycleKind::Killed {
            pod.kills = pod.kills.saturating_add(event.count);
        }
        if event.is_restart {
            pod.restarts = pod.restarts.saturating_add(event.count);
        }
    }
    let mut pods: Vec<PodReport> = pods
        .into_iter()
        .map(|((namespace, name), (pod, containers))| PodReport {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            containers: containers.into_iter().map(str::to_owned).collect(),
            ..pod
        })
        .collect();
    pods.sort_by_key(|pod| std::cmp::Reverse((pod.kills, pod.restarts, pod.failed, pod.slow)));
    pods
}
