//! The facts of a period, arranged for the lints: the attempts of each probe and of each container.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::finding::LintSubject;
use super::lifetimes::{Lifetimes, lifetimes};
use crate::execsync::{CallRecord, Evidence, ExecVerdict, ProbeMatch, cause_name, cause_names};
use crate::history::timeline::{Minute, Period, ProbeSeries, Prober};

/// Type of a probe that was learned from the times of its attempts.
const LEARNED: &str = "probe";

/// Maximum number of ids of calls of a finding.
pub(super) const MAX_IDS: usize = 10;

/// Minimum number of attempts before a sentence about a share of them is made.
pub(super) const MIN_ATTEMPTS: u32 = 10;

/// Minimum number of attempts with a problem that may also occur by chance.
pub(super) const MIN_AFFECTED: u32 = 3;

/// A period, with the attempts of each probe and of each container.
#[derive(Debug)]
pub(super) struct PeriodFacts<'a> {
    /// The period.
    pub(super) period: &'a Period,
    /// The attempts of each probe.
    pub(super) probes: Vec<ProbeFacts<'a>>,
    /// The attempts of each container.
    pub(super) containers: Vec<Attempts<'a>>,
    /// Starts, kills and exits of each container.
    pub(super) lifetimes: Vec<Lifetimes>,
    /// Whether one finding about the node has the place of equal ones about several containers.
    pub(super) grouped: bool,
}

/// The attempts of a probe.
#[derive(Debug)]
pub(super) struct ProbeFacts<'a> {
    /// The probe.
    pub(super) series: &'a ProbeSeries,
    /// Its attempts.
    pub(super) attempts: Attempts<'a>,
    /// Their results by minutes, in no order.
    pub(super) minutes: Vec<&'a Minute>,
}

/// Attempts of a probe, or of all probes of a container.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    /// The probe or the container.
    pub(super) subject: LintSubject,
    /// All results together.
    pub(super) total: Minute,
    /// The slow and failed ExecSyncs that are kept, in the order of their starts: samples of those
    /// that are counted.
    pub(super) calls: Vec<&'a CallRecord>,
}

/// Properties by which a call is found to belong to a series.
type SeriesKey = (String, String, String, String, String, String, Option<Duration>);

impl<'a> PeriodFacts<'a> {
    /// Arranges the facts of a period.
    pub(super) fn new(period: &'a Period) -> Self {
        let mut probes: Vec<ProbeFacts<'a>> = Vec::with_capacity(period.probes.len());
        let mut index: HashMap<SeriesKey, usize> = HashMap::new();
        for history in &period.probes {
            // Only the period or the threshold of such a series differs.
            let place = *index.entry(key(&history.series)).or_insert(probes.len());
            match probes.get_mut(place) {
                Some(known) => {
                    known.attempts.total.merge(&history.total());
                    known.minutes.extend(&history.minutes);
                    if known.series.failure_threshold.is_none() {
                        known.series = &history.series;
                    }
                }
                None => probes.push(ProbeFacts {
                    series: &history.series,
                    attempts: Attempts::new(subject(&history.series), history.total()),
                    minutes: history.minutes.iter().collect(),
                }),
            }
        }
        for record in &period.calls {
            let place = ProbeSeries::of_call(record).and_then(|series| index.get(&key(&series)));
            if let Some(probe) = place.and_then(|place| probes.get_mut(*place)) {
                probe.attempts.calls.push(record);
            }
        }
        let probes = join_learned(probes);
        let containers = containers(&probes);
        Self { period, probes, containers, lifetimes: lifetimes(&period.events), grouped: true }
    }

    /// Returns the number of ExecSyncs with a cause, by its name.
    pub(super) fn with_cause(&self, cause: &str) -> u32 {
        self.probes.iter().map(|probe| probe.attempts.with_cause(cause)).fold(0, u32::saturating_add)
    }

    /// Returns the calls that are kept and have a cause, by its name.
    pub(super) fn calls_with_cause(&self, cause: &str) -> Vec<&'a CallRecord> {
        self.probes.iter().flat_map(|probe| probe.attempts.calls_with_cause(cause)).collect()
    }

    /// Returns the number of processors of the node, if it is known.
    pub(super) fn processors(&self) -> Option<usize> {
        let of_node = self.period.node.as_ref().and_then(|node| node.processors);
        let of_call = |record: &Arc<CallRecord>| Some(evidence(record)?.load?.1);
        of_node.or_else(|| self.period.calls.iter().find_map(of_call))
    }
}

impl<'a> Attempts<'a> {
    fn new(subject: LintSubject, total: Minute) -> Self {
        Self { subject, total, calls: Vec::new() }
    }

    /// Returns the number of ExecSyncs that were slow or failed, and were sent to the runtime.
    pub(super) fn slow_or_failed(&self) -> u32 {
        let Minute { slow, failures, timeouts, errors, unknown, not_sent, .. } = &self.total;
        let counts = [slow, failures, timeouts, errors, unknown];
        counts.into_iter().copied().fold(0, u32::saturating_add).saturating_sub(*not_sent)
    }

    /// Returns the number of ExecSyncs with a cause, by its name.
    pub(super) fn with_cause(&self, cause: &str) -> u32 {
        self.total.causes.get(cause).copied().unwrap_or_default()
    }

    /// Returns the number of failures that are results of commands. A command that ended with its
    /// container has an exit code, which says nothing about the probe.
    pub(super) fn own_failures(&self) -> u32 {
        self.total.failures.saturating_sub(self.ended_with_container())
    }

    /// Returns the number of failures of commands that ended with their container.
    pub(super) fn ended_with_container(&self) -> u32 {
        self.with_cause(cause_name::ENDED_FAILURE)
    }

    /// Returns the calls that are kept and have a cause, by its name.
    pub(super) fn calls_with_cause(&self, cause: &str) -> Vec<&'a CallRecord> {
        self.calls.iter().copied().filter(|record| cause_names(record).contains(&cause)).collect()
    }
}

impl ProbeFacts<'_> {
    /// Returns whether the attempts belong to a probe, and not to an unknown purpose.
    pub(super) fn is_probe(&self) -> bool {
        self.series.probe != ProbeMatch::UNKNOWN
    }

    /// Returns whether a kubelet, or the prober of probeshim, makes the attempts, so that the
    /// kubelet's rules hold for their results.
    pub(super) fn has_kubelet_rules(&self) -> bool {
        self.is_probe() && matches!(self.series.prober, Prober::Kubelet | Prober::Probeshim)
    }
}

/// Returns the ids of calls, the last of them if there are many.
pub(super) fn ids(calls: &[&CallRecord]) -> Vec<u64> {
    calls.iter().skip(calls.len().saturating_sub(MAX_IDS)).map(|record| record.call.id).collect()
}

/// Returns the evidence of a call.
pub(super) fn evidence(record: &CallRecord) -> Option<&Evidence> {
    record.analysis.as_deref()?.evidence.as_deref()
}

/// Returns whether a call is an ExecSync with this verdict.
pub(super) fn has_verdict(record: &CallRecord, verdict: ExecVerdict) -> bool {
    ExecVerdict::from_record(record) == Some(verdict)
}

/// Returns the sum of durations, at most the longest duration.
pub(super) fn sum(durations: impl Iterator<Item = Duration>) -> Duration {
    durations.fold(Duration::ZERO, Duration::saturating_add)
}

/// Returns the number of items.
pub(super) fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

/// Returns whether a part is at least this share of the whole.
pub(super) fn is_share(part: u32, whole: u32, share: f64) -> bool {
    part > 0 && f64::from(part) >= share * f64::from(whole)
}

/// Returns a part of a number of things, with its percentage: `3 of 12 attempts (25 %)`.
pub(super) fn part(part: u32, whole: u32, things: &str) -> String {
    let percent = 100.0 * f64::from(part) / f64::from(whole.max(1));
    let percent = if part > 0 && percent < 1.0 { "<1".to_owned() } else { format!("{:.0}", percent.floor()) };
    format!("{part} of {whole} {things} ({percent} %)")
}

fn key(series: &ProbeSeries) -> SeriesKey {
    let ProbeSeries { namespace, pod, container, probe, handler, prober, timeout, .. } = series;
    // Calls of a command from which no period is inferred belong to the same series as the others.
    let probe = if series.learned().is_some() { ProbeMatch::UNKNOWN } else { probe.as_str() };
    let [namespace, pod, container, handler] = [namespace, pod, container, handler].map(String::clone);
    (namespace, pod, container, probe.to_owned(), handler, prober.name().to_owned(), *timeout)
}

fn subject(series: &ProbeSeries) -> LintSubject {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    LintSubject {
        namespace: text(&series.namespace),
        pod: text(&series.pod),
        container: text(&series.container),
        probe: text(&series.probe),
        prober: text(series.prober.name()),
        learned: series.learned(),
    }
}

/// Joins the attempts of a command that were made before its probe was known or learned with those
/// that were made afterwards.
fn join_learned(probes: Vec<ProbeFacts<'_>>) -> Vec<ProbeFacts<'_>> {
    let rank = |probe: &ProbeFacts<'_>| match probe.series.probe.as_str() {
        ProbeMatch::UNKNOWN => 2,
        LEARNED => 1,
        _ => 0,
    };
    let (mut named, mut others): (Vec<ProbeFacts<'_>>, Vec<ProbeFacts<'_>>) =
        probes.into_iter().partition(|probe| rank(probe) == 0);
    others.sort_by_key(rank);
    for other in others {
        let same = |probe: &ProbeSeries| {
            let name = probe.probe.clone();
            key(&ProbeSeries { probe: name, ..other.series.clone() }) == key(probe)
        };
        let mut candidates =
            named.iter_mut().filter(|probe| !other.series.command.is_empty() && same(probe.series));
        match (candidates.next(), candidates.next()) {
            (Some(probe), None) => {
                probe.attempts.total.merge(&other.attempts.total);
                probe.minutes.extend(other.minutes);
                probe.attempts.calls.extend(other.attempts.calls);
                probe.attempts.calls.sort_by_key(|record| (record.call.start, record.call.id));
            }
            _ => named.push(other),
        }
    }
    named
}

/// Returns the attempts of each container.
fn containers<'a>(probes: &[ProbeFacts<'a>]) -> Vec<Attempts<'a>> {
    let mut containers: Vec<Attempts<'a>> = Vec::new();
    let mut index: HashMap<LintSubject, usize> = HashMap::new();
    for ProbeFacts { attempts, .. } in probes {
        let container = attempts.subject.clone().into_container();
        let place = *index.entry(container.clone()).or_insert(containers.len());
        if place == containers.len() {
            containers.push(Attempts::new(container, Minute::default()));
        }
        let known = &mut containers[place];
        known.total.merge(&attempts.total);
        known.calls.extend(&attempts.calls);
    }
    for container in &mut containers {
        container.calls.sort_by_key(|record| (record.call.start, record.call.id));
    }
    containers
}
