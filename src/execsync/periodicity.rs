//! Learns the usual duration and the period of repeated calls.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::identity::ProbeMatch;

/// Maximum number of calls that are kept per pattern.
const MAX_SAMPLES: usize = 12;

/// Minimum number of samples for an inference.
const MIN_SAMPLES: usize = 3;

/// Maximum number of patterns. The pattern whose last call is oldest is dropped first.
const MAX_PATTERNS: usize = 4_096;

/// Tolerance for the kubelet's probe attempts, as a fraction of the period, and its minimum in
/// seconds.
const JITTER: (f64, f64) = (0.1, 0.15);

/// Deviation of an interval from the median, as a fraction of the median, up to which it may be one
/// of a single probe whose attempts come unevenly.
const UNEVENNESS: f64 = 0.25;

/// The call patterns of all containers.
#[derive(Debug, Default)]
pub(super) struct Periodicity {
    patterns: HashMap<PatternKey, CallPattern>,
}

/// A command with its timeout in a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PatternKey {
    /// The pod's uid and the container's name, so that the key survives a restart of the container;
    /// the container's id if they are unknown.
    container: Arc<str>,
    call: u64,
}

#[derive(Debug, Default)]
struct CallPattern {
    starts: VecDeque<Instant>,
    durations: VecDeque<Duration>,
}

impl PatternKey {
    pub(super) fn new(container: Arc<str>, command: &[String], timeout_seconds: i64) -> Self {
        let mut hasher = DefaultHasher::new();
        (command, timeout_seconds).hash(&mut hasher);
        Self { container, call: hasher.finish() }
    }
}

impl Periodicity {
    /// Records the start of a call. Returns the probe match that is inferred from this and earlier
    /// starts.
    pub(super) fn record_start(&mut self, key: &PatternKey, at: Instant) -> ProbeMatch {
        if !self.patterns.contains_key(key) {
            self.make_room();
        }
        let pattern = self.patterns.entry(key.clone()).or_default();
        push(&mut pattern.starts, at);
        pattern.identity()
    }

    /// Records the duration of a call that succeeded.
    pub(super) fn record_duration(&mut self, key: &PatternKey, duration: Duration) {
        if let Some(pattern) = self.patterns.get_mut(key) {
            push(&mut pattern.durations, duration);
        }
    }

    /// Returns the median duration; `None` if too few calls have succeeded.
    pub(super) fn median(&self, key: &PatternKey) -> Option<Duration> {
        let mut durations: Vec<Duration> = self.patterns.get(key)?.durations.iter().copied().collect();
        durations.sort_unstable();
        (durations.len() > MIN_SAMPLES).then(|| durations[durations.len() / 2])
    }

    fn make_room(&mut self) {
        if self.patterns.len() < MAX_PATTERNS {
            return;
        }
        let oldest = self.patterns.iter().min_by_key(|(_, pattern)| pattern.starts.back().copied());
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.patterns.remove(&key);
        }
    }
}

impl CallPattern {
    /// Infers a probe from the starts of calls. The kubelet's probe attempts come every whole
    /// number of seconds. If two probes have the same command, their attempts alternate, and every
    /// second call is regular. One probe whose attempts come unevenly, because the node is busy, is
    /// not mistaken for two.
    fn identity(&self) -> ProbeMatch {
        let alternate = || self.period(2).filter(|_| !self.is_uneven());
        self.period(1).or_else(alternate).unwrap_or_default()
    }

    /// Returns whether the intervals between calls differ by less than those of two probes that
    /// alternate would.
    fn is_uneven(&self) -> bool {
        let intervals = self.intervals(1);
        let median = intervals[intervals.len() / 2];
        let near = intervals.iter().filter(|interval| (**interval - median).abs() <= median * UNEVENNESS);
        near.count() * 2 > intervals.len() + 1
    }

    /// Returns the seconds from each call to the one that is `turns` later, shortest first.
    fn intervals(&self, turns: usize) -> Vec<f64> {
        let later = self.starts.iter().skip(turns);
        let mut intervals: Vec<f64> =
            self.starts.iter().zip(later).map(|(one, next)| (*next - *one).as_secs_f64()).collect();
        intervals.sort_by(f64::total_cmp);
        intervals
    }

    #[expect(clippy::cast_precision_loss, reason = "a dozen")]
    fn period(&self, turns: usize) -> Option<ProbeMatch> {
        let intervals = self.intervals(turns);
        if intervals.len() < MIN_SAMPLES {
            return None;
        }
        let seconds = intervals[intervals.len() / 2].round();
        let is_regular = |interval: &&f64| (**interval - seconds).abs() <= (seconds * JITTER.0).max(JITTER.1);
        let regular = intervals.iter().filter(is_regular).count() as f64 / intervals.len() as f64;
        // The confidence grows with the number of intervals, and stays below 1.
        let confidence =
            regular * (1.0 - 0.5_f64.powi(i32::try_from(intervals.len()).unwrap_or(i32::MAX) - 1));
        (seconds >= 1.0 && regular >= 0.7).then(|| ProbeMatch::Inferred {
            period: Duration::from_secs_f64(seconds),
            confidence: (confidence * 100.0).round() / 100.0,
        })
    }
}

fn push<T>(last: &mut VecDeque<T>, value: T) {
    if last.len() == MAX_SAMPLES {
        last.pop_front();
    }
    last.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the period in seconds and the confidence that are inferred from calls at these
    /// times, in milliseconds.
    fn learned(starts: &[u64]) -> Option<(u64, f64)> {
        let (mut periodicity, base) = (Periodicity::default(), Instant::now());
        let key = PatternKey::new("c0ffee".into(), &["true".to_owned()], 1);
        let record_start = |at: &u64| periodicity.record_start(&key, base + Duration::from_millis(*at));
        match starts.iter().map(record_start).last()? {
            ProbeMatch::Inferred { period, confidence } => Some((period.as_secs(), confidence)),
            _ => None,
        }
    }

    #[test]
    fn a_period_is_learned_from_regular_calls() {
        assert_eq!(learned(&[0, 10_000, 20_010]), None, "too few");
        assert_eq!(learned(&[0, 10_000, 20_010, 30_000]), Some((10, 0.75)));
        assert_eq!(learned(&[0, 1_000, 2_100, 2_990, 4_000, 5_000]), Some((1, 0.94)));
        assert_eq!(learned(&[0, 10_000, 20_000, 20_900, 30_000, 40_000, 50_000]), Some((10, 0.81)));
        assert_eq!(learned(&[0, 700, 9_000, 9_300, 31_000]), None, "a person types");
        assert_eq!(learned(&[0, 20, 40, 60, 80, 100]), None, "a benchmark");
        assert_eq!(learned(&[0, 3_000, 10_000, 13_000, 20_000, 23_010]), Some((10, 0.88)), "two alternate");
        assert_eq!(learned(&[0, 3_000, 6_500, 9_000, 12_500, 15_000]), None, "a busy node delays some");
    }

    #[test]
    fn the_median_duration_is_known_after_a_few_calls() {
        let mut periodicity = Periodicity::default();
        let key = PatternKey::new("c0ffee".into(), &["true".to_owned()], 1);
        periodicity.record_start(&key, Instant::now());
        for (millis, median) in [(30, None), (31, None), (900, None), (32, Some(32)), (33, Some(32))] {
            periodicity.record_duration(&key, Duration::from_millis(millis));
            assert_eq!(periodicity.median(&key), median.map(Duration::from_millis));
        }
    }

    #[test]
    fn the_number_of_call_patterns_is_bounded() {
        let (mut periodicity, now) = (Periodicity::default(), Instant::now());
        for number in 0..MAX_PATTERNS + 10 {
            let key = PatternKey::new(number.to_string().into(), &[], 0);
            periodicity.record_start(&key, now + Duration::from_millis(number as u64));
        }
        assert_eq!(periodicity.patterns.len(), MAX_PATTERNS);
        assert!(periodicity.median(&PatternKey::new("0".into(), &[], 0)).is_none());
        assert!(
            !periodicity.patterns.contains_key(&PatternKey::new("9".into(), &[], 0)),
            "the oldest are gone"
        );
    }
}
