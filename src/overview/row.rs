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
    /// Failure threshold of each type of the row, as far as the current pods have them.
    pub(crate) failure_thresholds: Vec<(String, u32)>,
}

impl ProbeRow {
    /// Returns the failure threshold as text; `None` if it is unknown. Probes that have the same
    /// command and timeout are one row, and the report has the threshold of the first one only.
    pub(crate) fn failure_threshold(&self, report: Option<&Report>) -> Option<String> {
        let of_type = |(name, threshold): &(String, u32)| format!("{threshold} ({name})");
        match &self.failure_thresholds[..] {
            [] => {
                let threshold = report?.probes.get(self.index?)?.failure_threshold?;
                match self.key.types()[..] {
                    [first, _, ..] if self.key.learned.is_none() => {
                        Some(of_type(&(first.to_owned(), threshold)))
                    }
                    _ => Some(threshold.to_string()),
                }
            }
            [(_, first), others @ ..] if others.iter().all(|(_, other)| other == first) => {
                Some(first.to_string())
            }
            all => Some(format!("differs: {}", all.iter().map(of_type).collect::<Vec<_>>().join(", "))),
        }
    }
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
    let thresholds = thresholds(&current);
    let thresholds_of = |key: &ProbeKey| {
        let of_type = |probe: &str| ProbeKey { probe: probe.to_owned(), ..key.clone() };
        let threshold =
            |probe: &str| Some((probe.to_owned(), *thresholds.get(&probe_names(&of_type(probe)))?));
        key.types().into_iter().filter_map(threshold).collect::<Vec<_>>()
    };
    let restarts_of = |key: &ProbeKey| {
        let container = [key.namespace.as_str(), key.pod.as_str(), key.container.as_str()];
        restarts.get(&container).copied().unwrap_or_default()
    };
    let mut rows: Vec<ProbeRow> = Vec::new();
    for (index, probe) in report.iter().flat_map(|report| &report.probes).enumerate() {
        let Some(report) = report else { continue };
        let key = ProbeKey::from_report(probe);
        let result = take_results(&mut current, &key)
            .map(|result| result.with_lateness(probe))
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
            failure_thresholds: thresholds_of(&key),
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
            failure_thresholds: thresholds_of(&key),
            key,
        });
    }
    rows
}

/// Returns the failure thresholds of the current probes by their names.
fn thresholds(current: &HashMap<ProbeKey, &StatusProbe>) -> HashMap<[String; 4], u32> {
    let threshold =
        |(key, probe): (&ProbeKey, &&StatusProbe)| Some((probe_names(key), probe.failure_threshold?));
    current.iter().filter_map(threshold).collect()
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;
    use crate::history::timeline::{Minute, PeriodBuilder, ProbeSeries, Prober};
    use crate::report::{ReportInput, Selection, report};

    /// Returns a report about a probe of probeshim with one minute of results.
    fn report_of(minute: &Minute) -> Report {
        report_about("liveness", Prober::Probeshim, minute)
    }

    fn report_about(probe: &str, prober: Prober, minute: &Minute) -> Report {
        let from = SystemTime::UNIX_EPOCH;
        let mut builder = PeriodBuilder::new(from, from + Duration::from_secs(60), 1);
        let series = ProbeSeries {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            probe: probe.to_owned(),
            prober,
            handler: "cat /tmp/healthy".to_owned(),
            command: vec!["cat".to_owned(), "/tmp/healthy".to_owned()],
            timeout: Some(Duration::from_secs(1)),
            period: Some(Duration::from_secs(10)),
            failure_threshold: Some(3),
        };
        builder.add_minute(series, minute);
        let input = ReportInput {
            generated: from,
            source: "a test".to_owned(),
            selection: Selection::default(),
            findings: Vec::new(),
        };
        report(&builder.build(), input)
    }

    /// Returns a probe with its result and its failure threshold.
    fn probe(name: &str, result: &str, threshold: u32) -> serde_json::Value {
        json!({
            "type": name, "handler": "exec", "source": "manifest", "result": result, "run": 2, "threshold": 3,
            "verdict": "success", "onHold": false, "wouldHaveKilled": 0, "failureThreshold": threshold,
        })
    }

    /// Returns the current pods with these probes.
    fn pods(probes: &[serde_json::Value]) -> Vec<StatusPod> {
        let container = json!({
            "name": "main", "id": "c", "attempt": 0, "state": "running", "exitCode": null, "reason": null,
            "source": "list", "probes": probes,
        });
        let pod = json!({
            "namespace": "shop", "name": "web", "uid": "u", "id": "s", "sandbox": "ready", "ip": null,
            "source": "list", "containers": [container],
        });
        vec![serde_json::from_value(pod).unwrap()]
    }

    #[test]
    fn a_success_after_the_timeout_is_late_also_if_probeshim_runs_the_probe() {
        let late = Minute { successes: 6, slow: 6, late: 6, ..Minute::default() };
        let on_time = Minute { successes: 6, ..Minute::default() };
        for (minute, result, shown) in
            [(&late, "success", "late"), (&on_time, "success", "ok"), (&late, "failure", "fail 2/3")]
        {
            let (report, pods) = (report_of(minute), pods(&[probe("liveness", result, 3)]));
            let now = CurrentPods { mode: "dry-run", pods: &pods };
            let rows = rows(Some(&report), Some(now), &LastResults::default());
            let texts: Vec<&str> = rows.iter().map(|row| row.result.text.as_str()).collect();
            assert_eq!(texts, [shown]);
        }
    }

    #[test]
    fn a_row_of_two_types_says_that_their_failure_thresholds_differ() {
        let minute = Minute { successes: 6, ..Minute::default() };
        let report = report_about("readiness or liveness", Prober::Kubelet, &minute);
        let threshold = |liveness: Option<u32>| {
            let probes = liveness.map(|liveness| {
                [probe("readiness", "success", 3), probe("liveness", "success", liveness)].to_vec()
            });
            let pods = pods(&probes.unwrap_or_default());
            let now = CurrentPods { mode: "off", pods: &pods };
            rows(Some(&report), Some(now), &LastResults::default())[0].failure_threshold(Some(&report))
        };
        assert_eq!(threshold(Some(3)).as_deref(), Some("3"));
        assert_eq!(threshold(Some(1)).as_deref(), Some("differs: 3 (readiness), 1 (liveness)"));
        assert_eq!(threshold(None).as_deref(), Some("3 (readiness)"), "the report has the first one only");
    }
}
