//! What there is to count.

use std::time::Duration;

/// What came of the probes of a pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// The pod's name.
    pub pod: &'static str,
    /// Probes that passed.
    pub passed: u32,
    /// Probes that failed.
    pub failed: u32,
    /// How long the slowest took.
    pub slowest: Duration,
}
