//! Limits the rate at which lists for clients are decoded.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Minimum interval between decoded lists of a kind, in milliseconds. A kubelet requests each list
/// every second. Lists that are requested more often have nothing new, and are long.
const MIN_INTERVAL: u64 = 250;

/// Rate limit of a kind of list. The byte path calls it.
#[derive(Debug)]
pub(super) struct RateLimit {
    began: Instant,
    /// Earliest time of the next list, in milliseconds since `began`.
    next: AtomicU64,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { began: Instant::now(), next: AtomicU64::new(0) }
    }
}

impl RateLimit {
    /// Returns whether a list may be decoded now. If so, further lists are refused for a while.
    pub(super) fn allow(&self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.began);
        let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let is_due = now >= self.next.load(Ordering::Relaxed);
        if is_due {
            self.next.store(now.saturating_add(MIN_INTERVAL), Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_rate_limit_refuses_calls_that_come_too_early() {
        let pace = RateLimit::default();
        let due: Vec<u64> = [0, 1, 249, 250, 251, 499, 500, 5000, 5001]
            .into_iter()
            .filter(|millis| pace.allow(pace.began + Duration::from_millis(*millis)))
            .collect();
        assert_eq!(due, [0, 250, 500, 5000]);
    }
}
