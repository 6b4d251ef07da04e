//! Counter of allocated bytes and of their peak.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

use super::wake_trimmer;

/// Number of bytes by which allocated memory must fall below its peak before a trim of the heap is
/// worthwhile.
pub(super) const MIN_DROP_BYTES: isize = 8 << 20;

/// Number of bytes that a thread allocates or frees before it adds them to `COUNTER`, so that
/// threads do not compete for the counter.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// Number of bytes that this process has allocated, with an error of at most `UNCOUNTED_BYTES` for
/// each thread that has ever run. The error grows too slowly to matter, because the peak is that
/// since the last trim.
pub(super) static COUNTER: Counter = Counter::new();

thread_local! {
    /// Number of bytes that this thread has allocated, less those that it has freed, since it last
    /// added them to `COUNTER`.
    static UNCOUNTED: Cell<isize> = const { Cell::new(0) };
}

/// Number of bytes allocated now, and at their peak.
#[derive(Debug)]
pub(super) struct Counter {
    allocated: AtomicIsize,
    peak: AtomicIsize,
    has_dropped: AtomicBool,
}

/// Counts bytes that this thread has allocated, or has freed if `bytes` is negative. The function
/// neither allocates nor panics: a sum that overflows wraps.
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

    /// Adds bytes. Returns whether the count has fallen by `MIN_DROP_BYTES` below its peak, for the
    /// first time since `reset_peak`.
    #[cold]
    fn add(&self, bytes: isize) -> bool {
        let allocated = self.allocated.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        let peak = self.peak.fetch_max(allocated, Ordering::Relaxed);
        peak.wrapping_sub(allocated) >= MIN_DROP_BYTES
            && !self.has_dropped.load(Ordering::Relaxed)
            && !self.has_dropped.swap(true, Ordering::Relaxed)
    }

    /// Returns the number of bytes allocated now.
    pub(super) fn allocated(&self) -> isize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Returns whether the count has fallen by `MIN_DROP_BYTES` below its peak since `reset_peak`.
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
    fn a_drop_of_memory_far_below_the_peak_is_reported_once_until_the_peak_is_reset() {
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
    fn a_memory_count_that_overflows_does_not_panic() {
        let counter = Counter::new();
        for bytes in [isize::MAX, isize::MAX, isize::MIN, isize::MIN, isize::MAX, 1] {
            counter.add(bytes);
            counter.reset_peak();
        }
    }

    #[test]
    fn growing_memory_is_not_reported_as_a_drop() {
        let counter = Counter::new();
        assert!((0..100).all(|_| !counter.add(MIN_DROP_BYTES)));
        assert!(!counter.has_dropped());
    }
}
