//! Bounded copies of the data of calls, with a limit for each copy and a common budget.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that all captures may hold together. A capture returns its part when it is dropped.
#[derive(Clone, Debug)]
pub struct CaptureBudget(Arc<AtomicUsize>);

/// Reason why a capture is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The data exceeds the limit of the capture.
    #[error("the message is too long")]
    TooLong,
    /// Other captures had taken the memory of the common budget.
    #[error("other captures have used up the memory")]
    BudgetExhausted,
}

/// A copy of the bytes of one direction of a call, or of one message. It gives up its bytes if it
/// cannot be complete.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    /// Number of bytes taken from the budget.
    held: usize,
    limit: usize,
    not_whole: Option<CaptureError>,
    budget: CaptureBudget,
}

impl CaptureBudget {
    /// Creates a budget of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Takes memory. Returns whether there was enough.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let left = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    /// Returns memory that was taken.
    pub(super) fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Capture {
    /// Creates an empty capture of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize, budget: &CaptureBudget) -> Self {
        Self { bytes: Vec::new(), held: 0, limit, not_whole: None, budget: budget.clone() }
    }

    /// Creates a capture of `bytes`, which is incomplete if the budget has too little memory.
    #[must_use]
    pub fn copied(bytes: &[u8], budget: &CaptureBudget) -> Self {
        let mut copy = Self::new(bytes.len(), budget);
        copy.add(bytes);
        copy
    }

    /// Returns all bytes that passed, or the reason why the capture is incomplete.
    pub fn bytes(&self) -> Result<&[u8], CaptureError> {
        self.not_whole.map_or(Ok(&self.bytes), Err)
    }

    /// Adds data. A capture that cannot be complete is of no use, and gives up its bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
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

    /// Takes memory from the budget. The capture doubles with each step, so that data in many
    /// pieces is seldom moved.
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
        // The budget counts the requested bytes, even if the allocator reserved more.
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
    fn a_capture_is_complete_or_has_an_error_and_releases_its_memory() {
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
        assert!(
            budget.take(10) && !budget.take(1),
            "captures that are dropped or given up return their memory"
        );
    }
}
