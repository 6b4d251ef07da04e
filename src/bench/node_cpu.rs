//! Processor time of the node, as `/proc/stat` counts it.

use std::time::Duration;

use procfs::{CurrentSI as _, KernelStats, ProcError};

/// Processor time of all cores of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeCpu {
    /// Time without idle time and without waiting for devices.
    pub(super) busy: Duration,
    /// Idle time and time in which processes wait for devices.
    pub(super) idle: Duration,
}

impl NodeCpu {
    /// Reads the processor time since the boot of the node.
    pub(super) fn read() -> Result<Self, ProcError> {
        KernelStats::current().map(|stats| Self::from_stats(&stats))
    }

    fn from_stats(stats: &KernelStats) -> Self {
        let times = &stats.total;
        let sum = |times: [Option<Duration>; 6]| times.into_iter().flatten().sum();
        Self {
            busy: sum([
                Some(times.user_duration()),
                Some(times.nice_duration()),
                Some(times.system_duration()),
                times.irq_duration(),
                times.softirq_duration(),
                times.steal_duration(),
            ]),
            idle: times.idle_duration() + times.iowait_duration().unwrap_or_default(),
        }
    }

    /// Returns the processor time since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Self {
        // The kernel may correct idle time and waiting downwards.
        Self { busy: self.busy.saturating_sub(earlier.busy), idle: self.idle.saturating_sub(earlier.idle) }
    }

    /// Returns the busy time in percent of the time of all cores; `None` if no time has passed.
    pub(super) fn busy_percent(self) -> Option<f64> {
        self.busy_share().map(|share| share * 100.0)
    }

    /// Returns the one of two measurements in which the node was less busy.
    pub(super) fn quieter(self, other: Self) -> Self {
        if other.busy_share() < self.busy_share() { other } else { self }
    }

    /// Returns the busy time that exceeds that of an idle node in the same time.
    pub(super) fn busy_beyond(self, idle_node: Self) -> Duration {
        let idle_busy = (self.busy + self.idle).mul_f64(idle_node.busy_share().unwrap_or_default());
        self.busy.saturating_sub(idle_busy)
    }

    fn busy_share(self) -> Option<f64> {
        let total = self.busy + self.idle;
        (!total.is_zero()).then(|| self.busy.as_secs_f64() / total.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use procfs::{ExplicitSystemInfo, FromBufReadSI as _};

    use super::*;

    /// Parses `/proc/stat` of a kernel that counts hundredths of a second.
    fn node_cpu(line: &str) -> NodeCpu {
        let system = ExplicitSystemInfo {
            boot_time_secs: 0,
            ticks_per_second: 100,
            page_size: 4096,
            is_little_endian: true,
        };
        let text = format!("{line}\nctxt 1\nbtime 1\nprocesses 1\n");
        NodeCpu::from_stats(&KernelStats::from_buf_read(text.as_bytes(), &system).unwrap())
    }

    #[test]
    fn busy_time_of_the_node_excludes_idle_time_and_waiting() {
        let before = node_cpu("cpu 100 10 50 1000 40 5 5 10 0 0");
        assert_eq!((before.busy.as_millis(), before.idle.as_millis()), (1800, 10_400));
        let after = node_cpu("cpu 150 10 70 1060 60 10 10 20 30 0");
        let used = after.since(before);
        assert_eq!((used.busy.as_millis(), used.idle.as_millis()), (900, 800));
        assert_eq!(used.busy_percent().map(|percent| format!("{percent:.1}")).as_deref(), Some("52.9"));
    }

    #[test]
    fn processor_time_that_the_kernel_corrects_downwards_is_not_negative() {
        let (before, after) =
            (node_cpu("cpu 100 0 0 1000 40 0 0 0 0 0"), node_cpu("cpu 110 0 0 1000 20 0 0 0 0 0"));
        let used = after.since(before);
        assert_eq!((used.busy.as_millis(), used.idle), (100, Duration::ZERO));
        assert_eq!(NodeCpu::default().busy_percent(), None);
    }

    #[test]
    fn busy_time_beyond_an_idle_node_excludes_its_share_of_the_same_time() {
        // Of 10 s, the idle node is busy for a tenth.
        let (used, idle_node) =
            (node_cpu("cpu 300 0 0 700 0 0 0 0 0 0"), node_cpu("cpu 5 0 0 45 0 0 0 0 0 0"));
        assert_eq!(used.busy_beyond(idle_node), Duration::from_secs(2));
        assert_eq!(used.busy_beyond(used), Duration::ZERO);
        assert_eq!(used.busy_beyond(NodeCpu::default()), Duration::from_secs(3));
        assert_eq!([used.quieter(idle_node), idle_node.quieter(used)], [idle_node; 2]);
    }
}
