//! Histogram of durations that takes little memory if most durations are similar.

use std::time::Duration;

/// Number of buckets in which durations double.
const PER_OCTAVE: f64 = 4.0;

/// Bucket whose lower bound is one second.
const SECOND: f64 = 40.0;

/// Histogram of durations. Bucket `n` begins at `2^((n - 40) / 4)` seconds, so that a second and
/// its doubles are bounds. The first bucket has all durations below 1.2 ms, and the last all from
/// 861 s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations(Vec<(u8, u32)>);

impl Durations {
    /// Number of the highest bucket, which has no upper bound.
    pub const LAST_BUCKET: u8 = 79;

    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        self.add_to(bucket(duration), 1);
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            self.add_to(*bucket, *count);
        }
    }

    /// Returns the buckets that have durations, with the numbers of durations, in order.
    #[must_use]
    pub fn buckets(&self) -> &[(u8, u32)] {
        &self.0
    }

    /// Returns the first bucket and the number of durations in it and in each further bucket up to
    /// the last, which is shorter than pairs if durations are similar. Empty without durations.
    pub(super) fn to_counts(&self) -> Vec<u32> {
        let (Some((first, _)), Some((last, _))) = (self.0.first(), self.0.last()) else { return Vec::new() };
        let mut counts = vec![0; 2 + usize::from(last - first)];
        counts[0] = u32::from(*first);
        for (bucket, count) in &self.0 {
            counts[1 + usize::from(bucket - first)] = *count;
        }
        counts
    }

    /// Returns the durations with these counts. Counts of buckets that do not exist are ignored.
    pub(super) fn from_counts(counts: &[u32]) -> Self {
        let Some((first, counts)) = counts.split_first() else { return Self::default() };
        let buckets =
            (u8::try_from(*first).unwrap_or(u8::MAX)..=Self::LAST_BUCKET).zip(counts.iter().copied());
        Self(buckets.filter(|(_, count)| *count > 0).collect())
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns the lower bound of a bucket.
    #[must_use]
    pub fn lower_bound(bucket: u8) -> Duration {
        Duration::from_secs_f64(((f64::from(bucket) - SECOND) / PER_OCTAVE).exp2())
    }

    /// Returns the upper bound of the bucket of a quantile from 0 to 1; `None` without durations.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of a count")]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let rank = ((f64::from(self.count()) * quantile).ceil() as u32).max(1);
        let mut seen = 0_u32;
        let found = self.0.iter().find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen >= rank
        });
        found.map(|(bucket, _)| Self::lower_bound(bucket.saturating_add(1)))
    }

    /// Returns whether no duration is in a longer bucket than this one, which is one of them.
    #[must_use]
    pub fn has_in_longest_bucket(&self, duration: Duration) -> bool {
        self.0.last().is_some_and(|(longest, _)| *longest == bucket(duration))
    }

    /// Returns the number of durations that are at least as long as this one. It is exact for a
    /// second and its doubles, and otherwise too low by at most the number in one bucket.
    #[must_use]
    pub fn count_from(&self, duration: Duration) -> u32 {
        let is_beyond = |bucket: u8| Self::lower_bound(bucket) >= duration;
        let beyond = self.0.iter().filter(|(bucket, _)| is_beyond(*bucket));
        beyond.fold(0_u32, |sum, (_, count)| sum.saturating_add(*count))
    }

    fn add_to(&mut self, bucket: u8, count: u32) {
        match self.0.binary_search_by_key(&bucket, |(known, _)| *known) {
            Ok(index) => self.0[index].1 = self.0[index].1.saturating_add(count),
            Err(index) => self.0.insert(index, (bucket, count)),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is from 0 to 79")]
fn bucket(duration: Duration) -> u8 {
    (SECOND + PER_OCTAVE * duration.as_secs_f64().log2()).clamp(0.0, f64::from(Durations::LAST_BUCKET)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(milliseconds: &[u64]) -> Durations {
        let mut durations = Durations::default();
        for duration in milliseconds {
            durations.add(Duration::from_millis(*duration));
        }
        durations
    }

    #[test]
    fn durations_from_a_second_on_are_counted_exactly() {
        let counted = durations(&[0, 10, 999, 1000, 1001, 1999, 2000, 5_000_000]);
        let from = |seconds| counted.count_from(Duration::from_secs(seconds));
        assert_eq!((counted.count(), from(1), from(2), from(4)), (8, 5, 2, 1));
    }

    #[test]
    fn a_quantile_is_at_most_a_fifth_above_the_duration() {
        let counted = durations(&(1..=1000).collect::<Vec<_>>());
        for (quantile, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = counted.quantile(quantile).unwrap().as_secs_f64() * 1e3;
            assert!((exact..exact * 1.2).contains(&found), "{quantile}: {found}");
        }
        assert_eq!(Durations::default().quantile(0.5), None);
    }

    #[test]
    fn counts_of_damaged_records_saturate() {
        let mut huge = Durations::from_counts(&[39, u32::MAX, u32::MAX, 7]);
        assert_eq!((huge.count(), huge.count_from(Duration::from_secs(1))), (u32::MAX, u32::MAX));
        assert_eq!(huge.quantile(1.0), Some(Durations::lower_bound(40)));
        huge.merge(&huge.clone());
        assert_eq!(huge.buckets(), [(39, u32::MAX), (40, u32::MAX), (41, 14)]);
        for (counts, expected) in [(&[u32::MAX, 1][..], &[][..]), (&[78, 1, 0, 3], &[(78, 1)]), (&[5], &[])] {
            assert_eq!(Durations::from_counts(counts).buckets(), expected, "{counts:?}");
        }
    }

    #[test]
    fn merged_histograms_have_the_durations_of_both() {
        let mut merged = durations(&[1, 100]);
        merged.merge(&durations(&[100, 7000]));
        assert_eq!(merged, durations(&[1, 100, 100, 7000]));
    }
}
