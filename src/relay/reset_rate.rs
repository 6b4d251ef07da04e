//! The rate at which a client may reset its calls.
//!
//! A reset immediately frees room for a new call, so `SETTINGS_MAX_CONCURRENT_STREAMS` does not
//! limit a client that opens calls only to reset them. Each of these calls costs the relay and the
//! runtime as much as a call with a response.

use std::time::Duration;

use tokio::time::Instant;

use super::h2_settings::MAX_CONCURRENT_STREAMS;

/// Number of resets that a client may send at the same time: those of all its calls.
const BURST: u32 = MAX_CONCURRENT_STREAMS;

/// Interval after which a client may send one more reset, which allows 10,000 per second.
const INTERVAL: Duration = Duration::from_micros(100);

/// Minimum pause. It lets the relay read many resets of a client at the limit together.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// A token bucket for the resets of one client.
#[derive(Debug)]
pub(super) struct ResetRate {
    /// Time at which the bucket is full again.
    full_at: Instant,
}

impl ResetRate {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Counts a reset. If the client exceeds the rate, returns the time until which it should not
    /// be read.
    pub(super) fn count(&mut self, now: Instant) -> Option<Instant> {
        self.full_at = self.full_at.max(now) + INTERVAL;
        let excess = (self.full_at - now).saturating_sub(BURST * INTERVAL);
        (!excess.is_zero()).then(|| now + excess.max(MIN_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_reset_a_burst_of_calls_and_then_some_each_millisecond() {
        let start = Instant::now();
        let mut rate = ResetRate::new(start);
        for _ in 0..BURST {
            assert_eq!(rate.count(start), None);
        }
        let later = start + Duration::from_millis(1);
        for _ in 0..10 {
            assert_eq!(rate.count(later), None);
        }
        assert_eq!(rate.count(later), Some(later + MIN_PAUSE));
    }

    #[test]
    fn a_pause_lasts_until_the_resets_are_within_the_rate() {
        let start = Instant::now();
        let mut rate = ResetRate::new(start);
        let pause = (0..2 * BURST).filter_map(|_| rate.count(start)).last();
        assert_eq!(pause, Some(start + BURST * INTERVAL));
        assert_eq!(rate.count(start + BURST * INTERVAL + INTERVAL), None);
    }
}
