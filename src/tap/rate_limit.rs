//! How often the lists that clients ask for are looked at.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Milliseconds from one list that is looked at to the next of its kind, at least. A kubelet asks for each every second; what a client asks
/// for over and over tells nothing new, and lists are long.
const MIN_INTERVAL: u64 = 250;

/// The pace of one kind of list. It is asked on the byte path.
#[derive(Debug)]
pub(super) struct RateLimit {
    began: Instant,
    /// In milliseconds since then.
    next: AtomicU64,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { began: Instant::now(), next: AtomicU64::new(0) }
    }
}

impl RateLimit {
    /// Whether it is time to look at a list again; if so, it will be a while until the next.
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
    fn what_comes_too_soon_is_passed_over() {
        let pace = RateLimit::default();
        let due: Vec<u64> = [0, 1, 249, 250, 251, 499, 500, 5000, 5001]
            .into_iter()
            .filter(|millis| pace.allow(pace.began + Duration::from_millis(*millis)))
            .collect();
        assert_eq!(due, [0, 250, 500, 5000]);
    }
}
