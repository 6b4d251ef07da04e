//! A limit of a rate that permits a burst.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket (client-go: `util/flowcontrol/throttle.go`: `NewTokenBucketRateLimiter`).
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// Time in which a token is added.
    interval: Duration,
    /// Number of tokens in a full bucket.
    burst: u32,
    /// Time at which the bucket is full again; `None` before the first token was taken.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full bucket, to which a token is added after each `interval`.
    pub(crate) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, full_at: None }
    }

    /// Takes a token. Returns whether there was one.
    pub(crate) fn try_accept(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + self.interval;
        let is_accepted = full_at - now <= self.interval * self.burst;
        if is_accepted {
            self.full_at = Some(full_at);
        }
        is_accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_bucket_permits_a_burst_and_then_its_rate() {
        let (mut bucket, start) = (TokenBucket::new(Duration::from_millis(200), 10), Instant::now());
        let mut accepted = |milliseconds: u64, tries: usize| {
            let now = start + Duration::from_millis(milliseconds);
            (0..tries).filter(|_| bucket.try_accept(now)).count()
        };
        assert_eq!(accepted(0, 12), 10);
        assert_eq!(accepted(199, 1), 0);
        assert_eq!(accepted(200, 2), 1);
        assert_eq!(accepted(1200, 10), 5);
        assert_eq!(accepted(60_000, 12), 10, "the bucket holds no more than a burst");
    }
}
