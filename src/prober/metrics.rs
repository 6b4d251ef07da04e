//! Metrics of probes: those of the kubelet under its names and labels, and those of probeshim for
//! facts that the kubelet hides.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::pod::AttemptContext;
use super::threshold::ProbeResult;
use crate::events::reason;
use crate::handler::meter::{AttemptMeter, Probed, Series};

/// Upper bounds of the buckets of durations, in seconds, as in the kubelet.
const DURATIONS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Upper bounds of the buckets of timeout margins, in seconds. A margin is negative if the attempt
/// ended after its timeout.
const MARGINS: [f64; 8] = [0.0, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Upper bounds of the buckets of the lateness of attempts, in seconds.
const LATENESS: [f64; 9] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0];

/// Metrics of probes. Clones share the values.
#[derive(Clone, Debug)]
pub struct ProberMetrics {
    since: SystemTime,
    total: Family<TotalLabels, Counter>,
    durations: Family<ProbeLabels, Histogram>,
    failures: Family<ProbeLabels, Histogram>,
    margins: Family<ProbeLabels, Histogram>,
    errors: Family<TotalLabels, Counter>,
    discarded: Family<TotalLabels, Counter>,
    caused_discards: Family<TotalLabels, Counter>,
    late: Histogram,
    workers: Gauge,
    faults: Counter,
    verdicts: Family<VerdictLabels, Counter>,
    kills: Family<KillLabels, Counter>,
    agreement: Family<AgreementLabels, Counter>,
}

/// Labels of histograms of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ProbeLabels(Arc<Probed>);

/// Labels of counters of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TotalLabels {
    result: Option<&'static str>,
    probed: Arc<Probed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    probe_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KillLabels {
    probe_type: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgreementLabels {
    kill: &'static str,
}

/// Comparison of the kubelet's kills with the prober's predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Kills by the kubelet that the prober predicted.
    pub predicted: u64,
    /// Kills by the kubelet that the prober did not predict.
    pub unpredicted: u64,
    /// Kills that the prober predicted and the kubelet did not make.
    pub not_observed: u64,
}

/// Values of the label `result`. The kubelet has a third value, `unknown`, which no attempt
/// reaches.
const SUCCESSFUL: &str = "successful";
const FAILED: &str = "failed";

impl Default for ProberMetrics {
    fn default() -> Self {
        let durations = || Family::new_with_constructor((|| Histogram::new(DURATIONS)) as fn() -> Histogram);
        let margins = Family::new_with_constructor((|| Histogram::new(MARGINS)) as fn() -> Histogram);
        Self {
            since: SystemTime::now(),
            total: Family::default(),
            durations: durations(),
            failures: durations(),
            margins,
            errors: Family::default(),
            discarded: Family::default(),
            caused_discards: Family::default(),
            late: Histogram::new(LATENESS),
            workers: Gauge::default(),
            faults: Counter::default(),
            verdicts: Family::default(),
            kills: Family::default(),
            agreement: Family::default(),
        }
    }
}

impl ProberMetrics {
    /// Creates a sample of each family, because families without samples are not encoded.
    #[cfg(test)]
    pub(crate) fn create_samples(&self) {
        let series = Series(Arc::default());
        self.attempted(&series, ProbeResult::Success, Duration::ZERO, 0.0);
        self.attempted(&series, ProbeResult::Failure, Duration::ZERO, 0.0);
        self.errored(&series);
        drop(self.discarded.get_or_create(&TotalLabels::new(&series, None)));
        drop(self.caused_discards.get_or_create(&TotalLabels::new(&series, None)));
        self.would_kill("");
        self.killed("", true);
        self.count_agreement(reason::KILL_PREDICTED);
    }

    /// Registers the metrics that do not belong to single probes.
    pub fn register(&self, registry: &mut Registry) {
        let late = "Lateness of probe attempts at their start";
        registry.register_with_unit("prober_lateness", late, Unit::Seconds, self.late.clone());
        registry.register("prober_workers", "Number of probe workers", self.workers.clone());
        registry.register(
            "prober_panics",
            "Probe attempts that ended with a panic of probeshim",
            self.faults.clone(),
        );
        registry.register("prober_would_kill", "Would-be kills of containers", self.verdicts.clone());
        let help = "Kills of containers because a probe failed, by result";
        registry.register("kills", help, self.kills.clone());
        let help = "Kills by a kubelet that dry-run predicted or did not predict, and predicted kills that were not observed";
        registry.register("prober_agreement", help, self.agreement.clone());
    }

    /// Returns the metrics of single probes, which the kubelet serves separately
    /// (`/metrics/probes`). Each family has a registry of its own, because some families are large.
    #[must_use]
    pub fn registries(&self) -> Vec<Registry> {
        let since = Gauge::<f64, AtomicU64>::default();
        since.set(self.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        vec![
            alone("process_start_time_seconds", "Start time of the process in seconds since 1970", since),
            alone("prober_probe", "Probe attempts by result", self.total.clone()),
            alone(
                "prober_probe_duration_seconds",
                "Duration of successful probe attempts",
                self.durations.clone(),
            ),
            alone(
                "probeshim_prober_failure_duration_seconds",
                "Duration of failed probe attempts",
                self.failures.clone(),
            ),
            alone(
                "probeshim_prober_timeout_margin_seconds",
                "Time left until the timeout at the end of a probe attempt",
                self.margins.clone(),
            ),
            alone(
                "probeshim_prober_errors",
                "Probe attempts whose outcome is unknown, which count neither as success nor as failure",
                self.errors.clone(),
            ),
            alone(
                "probeshim_prober_discarded_attempts",
                "Probe attempts discarded because the prober's thread was late",
                self.discarded.clone(),
            ),
            alone(
                "probeshim_prober_caused_discards",
                "Probe attempts of other probes that were discarded while this probe took most of the prober's time",
                self.caused_discards.clone(),
            ),
        ]
    }

    /// Records the lateness at the start of an attempt.
    pub(super) fn late(&self, by: Duration) {
        self.late.observe(by.as_secs_f64());
    }

    pub(super) fn fault(&self) {
        self.faults.inc();
    }

    pub(super) fn started(&self) {
        self.workers.inc();
    }

    pub(super) fn ended(&self) {
        self.workers.dec();
    }

    /// Counts a kill, or a failed kill if `is_stopped` is false.
    pub(super) fn killed(&self, probe_type: &'static str, is_stopped: bool) {
        let result = if is_stopped { "stopped" } else { "failed" };
        self.kills.get_or_create(&KillLabels { probe_type, result }).inc();
    }

    /// Counts an event if its reason compares kills of the kubelet with the prober's predictions.
    pub(super) fn count_agreement(&self, reason: &'static str) {
        if let Some(labels) = AgreementLabels::for_reason(reason) {
            self.agreement.get_or_create(&labels).inc();
        }
    }

    /// Returns the comparison of the kubelet's kills with the prober's predictions.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        let count = |reason| {
            let labels = AgreementLabels::for_reason(reason);
            labels.map_or(0, |labels| self.agreement.get_or_create(&labels).get())
        };
        Agreement {
            predicted: count(reason::KILL_PREDICTED),
            unpredicted: count(reason::KILL_UNPREDICTED),
            not_observed: count(reason::KILL_NOT_OBSERVED),
        }
    }

    /// Counts a would-be kill.
    pub(super) fn would_kill(&self, probe_type: &'static str) {
        self.verdicts.get_or_create(&VerdictLabels { probe_type }).inc();
    }

    /// Records an attempt with its result, its duration, and its timeout margin in seconds.
    pub(super) fn attempted(&self, series: &Series, result: ProbeResult, took: Duration, margin: f64) {
        let (labels, seconds) = (ProbeLabels(series.0.clone()), took.as_secs_f64());
        let (result, durations) = match result {
            ProbeResult::Success => (SUCCESSFUL, &self.durations),
            ProbeResult::Failure | ProbeResult::Unknown => (FAILED, &self.failures),
        };
        self.total.get_or_create(&TotalLabels::new(series, Some(result))).inc();
        durations.get_or_create(&labels).observe(seconds);
        self.margins.get_or_create(&labels).observe(margin);
    }

    pub(super) fn errored(&self, series: &Series) {
        self.errors.get_or_create(&TotalLabels::new(series, None)).inc();
    }

    /// Counts an attempt that was discarded because the prober was late. `by` is the probe that
    /// used most of the time, if there is one.
    pub(super) fn discarded(&self, series: &Series, by: Option<&Arc<AttemptMeter>>) {
        self.discarded.get_or_create(&TotalLabels::new(series, None)).inc();
        if let Some(by) = by.filter(|by| !by.is_over()) {
            self.caused_discards.get_or_create(&TotalLabels::new(&by.series, None)).inc();
        }
    }

    /// Removes the metrics of a probe that has ended, as the kubelet does.
    pub(super) fn end(&self, series: &Series) {
        for result in [SUCCESSFUL, FAILED] {
            self.total.remove(&TotalLabels::new(series, Some(result)));
        }
        for family in [&self.errors, &self.discarded, &self.caused_discards] {
            family.remove(&TotalLabels::new(series, None));
        }
        let labels = ProbeLabels(series.0.clone());
        self.durations.remove(&labels);
        self.failures.remove(&labels);
        self.margins.remove(&labels);
    }
}

/// Returns a registry with one family.
fn alone(name: &str, help: &str, family: impl Metric) -> Registry {
    let mut registry = Registry::default();
    registry.register(name, help, family);
    registry
}

impl Series {
    pub(super) fn new(task: &AttemptContext) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self(Arc::new(Probed {
            probe_type: task.probe_type.title(),
            container: text(&task.container.name),
            pod: text(&task.pod.name),
            namespace: text(&task.pod.namespace),
            pod_uid: text(&task.pod.uid),
        }))
    }
}

impl AgreementLabels {
    fn for_reason(reason: &str) -> Option<Self> {
        let kill = match reason {
            reason::KILL_PREDICTED => "predicted",
            reason::KILL_UNPREDICTED => "unpredicted",
            reason::KILL_NOT_OBSERVED => "not_observed",
            _ => return None,
        };
        Some(Self { kill })
    }
}

impl TotalLabels {
    fn new(series: &Series, result: Option<&'static str>) -> Self {
        Self { result, probed: series.0.clone() }
    }
}

impl EncodeLabelSet for ProbeLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let Probed { probe_type, container, pod, namespace, .. } = &*self.0;
        [("probe_type", *probe_type), ("container", container), ("pod", pod), ("namespace", namespace)]
            .as_slice()
            .encode(encoder)
    }
}

impl EncodeLabelSet for TotalLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let Probed { probe_type, container, pod, namespace, pod_uid } = &*self.probed;
        if let Some(result) = self.result {
            [("result", result)].as_slice().encode(encoder)?;
        }
        let labels = [
            ("probe_type", *probe_type),
            ("container", container),
            ("pod", pod),
            ("namespace", namespace),
            ("pod_uid", pod_uid),
        ];
        labels.as_slice().encode(encoder)
    }
}
