//! A count of the bytes that are allocated, and of their peak.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

use super::wake_trimmer;

/// Bytes by which allocated memory falls below its peak before the heap is worth a trim.
pub(super) const MIN_DROP_BYTES: isize = 8 << 20;

/// Bytes that a thread allocates or frees before it adds them to `COUNTER`, so that threads do not compete
/// for it.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// The bytes that this process has allocated, give or take `UNCOUNTED_BYTES` for each thread that has ever
/// run. That error grows too slowly to matter: the peak is that since the last trim.
pub(super) static COUNTER: Counter = Counter::new();

thread_local! {
    /// Bytes that this thread has allocated, less those that it has freed, since it last added them to
    /// `COUNTER`.
    static UNCOUNTED: Cell<isize> = const { Cell::new(0) };
}

/// Bytes allocated now, and at their peak.
#[derive(Debug)]
pub(super) struct Counter {
    allocated: AtomicIsize,
    peak: AtomicIsize,
    has_dropped: AtomicBool,
}

/// Counts bytes that this thread has allocated, or has freed if they are negative. It neither allocates nor
/// panics: a sum that overflows wraps.
#[inline]
pub(super) fn count(bytes: isize) {
    let uncounted = UNCOUNTED.get().wrapping_add(bytes);
    if uncounted.unsigned_abs() < UNCOUNTED_BYTES {
        UNCOUNTED.set(uncounted);
    } else {
        UNCOUNTED.set(0);
        if COUNTER.add(uncounted) {
            wake_trimmer();
        }
    }
}

impl Counter {
    const fn new() -> Self {
        Self {
            allocated: AtomicIsize::new(0),
            peak: AtomicIsize::new(0),
            has_dropped: AtomicBool::new(false),
        }
    }

    /// Adds bytes, and returns whether the count has now fallen far below its peak, for the first time since
    /// `reset_peak`.
    #[cold]
    fn add(&self, bytes: isize) -> bool {
        let allocated = self.allocated.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        let peak = self.peak.fetch_max(allocated, Ordering::Relaxed);
        peak.wrapping_sub(allocated) >= MIN_DROP_BYTES
            && !self.has_dropped.load(Ordering::Relaxed)
            && !self.has_dropped.swap(true, Ordering::Relaxed)
    }

    /// The bytes allocated now.
    pub(super) fn allocated(&self) -> isize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Whether the count has fallen far below its peak since `reset_peak`.
    pub(super) fn has_dropped(&self) -> bool {
        self.has_dropped.load(Ordering::Relaxed)
    }

    /// Makes the current count the peak.
    pub(super) fn reset_peak(&self) {
        self.peak.store(self.allocated(), Ordering::Relaxed);
        self.has_dropped.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_far_below_the_peak_is_reported_once_until_the_peak_is_reset() {
        let counter = Counter::new();
        assert!(!counter.add(3 * MIN_DROP_BYTES));
        assert!(!counter.add(1 - MIN_DROP_BYTES), "not far enough");
        assert!(!counter.has_dropped());
        assert!(counter.add(-1));
        assert!(!counter.add(-1), "it has been reported");
        assert!(counter.has_dropped());
        counter.reset_peak();
        assert!(!counter.has_dropped());
        assert_eq!(counter.allocated(), 2 * MIN_DROP_BYTES - 1);
        assert!(!counter.add(1 - MIN_DROP_BYTES), "the peak is the count at the reset");
        assert!(counter.add(-1));
    }

    #[test]
    fn a_count_that_overflows_does_not_panic() {
        let counter = Counter::new();
        for bytes in [isize::MAX, isize::MAX, isize::MIN, isize::MIN, isize::MAX, 1] {
            counter.add(bytes);
            counter.reset_peak();
        }
    }

    #[test]
    fn memory_that_grows_is_no_drop() {
        let counter = Counter::new();
        assert!((0..100).all(|_| !counter.add(MIN_DROP_BYTES)));
        assert!(!counter.has_dropped());
    }
}
