//! What went on in a container, and on the node, while a call lasted.

mod cgroup;
mod counters;
mod processes;
mod sampler;

use std::time::Duration;

pub use processes::ProcessInfo;
pub(super) use sampler::{SampleRequest, SampleResult, Sampler};

/// What was measured from the beginning of a call to its end: from a tenth of a second before, where other calls began then, or a little
/// after, where the container had to be found first. `None` is not measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// How long it was measured.
    pub window: Duration,
    /// `ExecSync`s in flight when the call ended, itself included: in the container, and on the node.
    pub in_flight: (usize, usize),
    /// The container's processor time.
    pub cpu: Option<CpuUsage>,
    /// How long processes of the container stood still for want of something. cgroup v2 only.
    pub container_pressure: Option<PressureStall>,
    /// The same of the whole node.
    pub node_pressure: Option<PressureStall>,
    /// How long that was measured: calls that begin within a tenth of a second share a beginning.
    pub psi_window: Duration,
    /// Processes and threads of the container.
    pub pids: Option<Pids>,
    /// Whether the container is frozen.
    pub is_frozen: Option<bool>,
    /// Processes of the container that the kernel killed for want of memory.
    pub oom_kills: Option<u64>,
    /// The node's load over the last minute, and how many processors it has.
    pub load: Option<(f64, usize)>,
}

/// Processor time of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// How many processors it may use; `None` for all.
    pub quota: Option<f64>,
    /// What it used.
    pub used: Option<Duration>,
    /// Periods of the quota that began.
    pub periods: u64,
    /// In how many of them it was throttled.
    pub throttled_periods: u64,
    /// How long it was throttled, summed over processors.
    pub throttled: Duration,
}

/// How long some processes stood still, of those that had something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureStall {
    /// For want of a processor.
    pub cpu: Duration,
    /// For want of storage.
    pub io: Duration,
    /// For want of memory.
    pub memory: Duration,
}

/// How many processes and threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pids {
    /// Now.
    pub current: u64,
    /// At most; `None` for any number.
    pub max: Option<u64>,
}
