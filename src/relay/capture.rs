//! A copy of what a call carries: the beginning of it, within a limit for each and a budget for all.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory that captures may take together. A capture gives back its part when dropped.
#[derive(Clone, Debug)]
pub struct CaptureBudget(Arc<AtomicUsize>);

/// Why a capture is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// There was more than a capture may hold.
    #[error("it is too long")]
    TooLong,
    /// Other captures had taken the memory.
    #[error("other captures had taken the memory")]
    BudgetExhausted,
}

/// The beginning of what one direction of a call carried.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    /// What it has taken of the budget.
    held: usize,
    limit: usize,
    not_whole: Option<CaptureError>,
    budget: CaptureBudget,
}

impl CaptureBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        let left = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Capture {
    /// An empty capture that will hold up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize, budget: &CaptureBudget) -> Self {
        Self { bytes: Vec::new(), held: 0, limit, not_whole: None, budget: budget.clone() }
    }

    /// Everything that passed, or why it is not here.
    pub fn bytes(&self) -> Result<&[u8], CaptureError> {
        self.not_whole.map_or(Ok(&self.bytes), Err)
    }

    /// Takes what passes. A capture that cannot be whole is of no use, and gives up what it held.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.not_whole.is_some() {
            return;
        }
        if bytes.len() > self.limit - self.bytes.len() {
            self.give_up(CaptureError::TooLong);
        } else if !self.make_room(bytes.len()) {
            self.give_up(CaptureError::BudgetExhausted);
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Takes memory from the budget, twice as much each time, so that what comes in many pieces is moved seldom.
    fn make_room(&mut self, more: usize) -> bool {
        let (held, needed) = (self.held, self.bytes.len() + more);
        if needed <= held {
            return true;
        }
        let wanted = needed.max(2 * held).min(self.limit);
        if !self.budget.take(wanted - held) {
            return false;
        }
        self.bytes.reserve_exact(wanted - self.bytes.len());
        // An allocator may be generous, but not at the budget's cost.
        self.held = wanted;
        true
    }

    fn give_up(&mut self, why: CaptureError) {
        self.not_whole = Some(why);
        self.empty();
    }

    fn empty(&mut self) {
        self.bytes = Vec::new();
        self.budget.give_back(mem::take(&mut self.held));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_whole_or_says_why_not_and_gives_its_memory_back() {
        let budget = CaptureBudget::new(10);
        let mut small = Capture::new(6, &budget);
        small.add(b"abc");
        small.add(b"def");
        assert_eq!(small.bytes(), Ok(&b"abcdef"[..]));
        let mut late = Capture::new(6, &budget);
        late.add(b"1234");
        late.add(b"5");
        assert_eq!(late.bytes(), Err(CaptureError::BudgetExhausted));
        drop(small);
        let mut long = Capture::new(6, &budget);
        long.add(b"123456");
        long.add(b"7");
        long.add(b"8");
        assert_eq!(long.bytes(), Err(CaptureError::TooLong));
        assert!(budget.take(10) && !budget.take(1), "what was dropped or given up has been given back");
    }
}
