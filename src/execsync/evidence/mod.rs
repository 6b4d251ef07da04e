//! Measurements of a container and the node during a call.

mod cgroup;
mod counters;
mod processes;
mod sampler;
mod zombies;

use std::time::Duration;

pub(super) use processes::keep_program;
pub use processes::{ProcessInfo, session_processes};
pub(super) use sampler::{SampleRequest, SampleResult, Sampler};
pub(super) use zombies::ZombieReport;
pub use zombies::{ZombieParent, Zombies};

/// Measurements from the start of a call to its end. They begin up to 0.1 s before the call if
/// another call of the container began then, or slightly after its start if the container had to be
/// found first. `None` was not measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Duration of the measurement.
    pub window: Duration,
    /// Number of `ExecSync`s in flight when the call ended, including the call itself: in the
    /// container, and on the node.
    pub in_flight: (usize, usize),
    /// CPU usage of the container.
    pub cpu: Option<CpuUsage>,
    /// Time for which processes of the container were stalled. Requires cgroup v2.
    pub container_pressure: Option<PressureStall>,
    /// Time for which processes of the node were stalled.
    pub node_pressure: Option<PressureStall>,
    /// Duration of the measurement of `node_pressure`. Calls that start within 0.1 s share its
    /// start.
    pub psi_window: Duration,
    /// Number of processes and threads of the container, or of its pod or of all pods if their
    /// limit leaves less room.
    pub pids: Option<Pids>,
    /// Whether the container is frozen.
    pub is_frozen: Option<bool>,
    /// Number of processes of the container that the kernel killed for lack of memory.
    pub oom_kills: Option<u64>,
    /// The node's load average over the last minute, and its number of processors.
    pub load: Option<(f64, usize)>,
}

/// CPU usage of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// CPU quota as a number of processors; `None` without a quota.
    pub quota: Option<f64>,
    /// CPU time that the container used.
    pub used: Option<Duration>,
    /// Number of CFS periods.
    pub periods: u64,
    /// Number of CFS periods in which the container was throttled.
    pub throttled_periods: u64,
    /// Time for which the container was throttled, summed over processors.
    pub throttled: Duration,
}

/// Time for which some tasks were stalled, from the line `some` of PSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureStall {
    /// Time for which some tasks waited for a processor.
    pub cpu: Duration,
    /// Time for which some tasks waited for I/O.
    pub io: Duration,
    /// Time for which some tasks waited for memory.
    pub memory: Duration,
}

/// Number of processes and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pids {
    /// The current number.
    pub current: u64,
    /// The limit; `None` without a limit.
    pub max: Option<u64>,
    /// The object to which the number and the limit belong.
    pub scope: PidsScope,
}

/// An object with a limit of processes and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PidsScope {
    /// The container.
    #[default]
    Container,
    /// Its pod: a kubelet's `podPidsLimit`.
    Pod,
    /// Several pods: those of a quality-of-service class, or all of the node.
    Pods,
}

impl Pids {
    /// Returns the number and the limit as text: `12 of at most 20 processes and threads`; `None`
    /// without a limit.
    #[must_use]
    pub fn share(&self) -> Option<String> {
        Some(format!("{} of at most {} processes and threads", self.current, self.max?))
    }
}

impl PidsScope {
    /// Returns the object as a part of a sentence.
    #[must_use]
    pub fn owner(self) -> &'static str {
        match self {
            Self::Container => "the container",
            Self::Pod => "the pod",
            Self::Pods => "a group of pods that includes this one",
        }
    }

    /// Returns the name of the scope.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
            Self::Pods => "pods",
        }
    }

    /// Returns the scope with a name; the container for an unknown one.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        [Self::Pod, Self::Pods].into_iter().find(|scope| scope.name() == name).unwrap_or_default()
    }
}
