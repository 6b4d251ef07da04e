//! Counters of the kernel. Only their growth is meaningful.

use std::time::Duration;

use super::{CpuUsage, PressureStall};

/// Counters of a container at one time; `None` if the kernel does not have the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) cpu: Option<CpuCounters>,
    pub(super) pressure: Option<PressureStall>,
    pub(super) oom_kills: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuCounters {
    pub(super) usage: Option<Duration>,
    pub(super) periods: u64,
    pub(super) throttled_periods: u64,
    pub(super) throttled_time: Duration,
}

impl CpuCounters {
    /// Returns the growth since an earlier reading.
    pub(super) fn delta_since(self, before: Self, quota: Option<f64>) -> CpuUsage {
        CpuUsage {
            quota,
            used: self.usage.zip(before.usage).map(|(now, before)| now.saturating_sub(before)),
            periods: self.periods.saturating_sub(before.periods),
            throttled_periods: self.throttled_periods.saturating_sub(before.throttled_periods),
            throttled: self.throttled_time.saturating_sub(before.throttled_time),
        }
    }
}

impl PressureStall {
    /// Returns the growth since an earlier reading.
    pub(super) fn delta_since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            io: self.io.saturating_sub(before.io),
            memory: self.memory.saturating_sub(before.memory),
        }
    }
}

/// Reads `cpu.stat` of either version of cgroups.
pub(super) fn parse_cpu_stat(text: &str) -> CpuCounters {
    let value = |key| field_value(text, key);
    let microseconds = |key| value(key).map(Duration::from_micros);
    CpuCounters {
        usage: microseconds("usage_usec"),
        periods: value("nr_periods").unwrap_or(0),
        throttled_periods: value("nr_throttled").unwrap_or(0),
        throttled_time: microseconds("throttled_usec")
            .or_else(|| value("throttled_time").map(Duration::from_nanos))
            .unwrap_or_default(),
    }
}

/// Returns the number after a key in a file with one pair on each line.
pub(super) fn field_value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns the total of the line `some` of a PSI file: the time for which some tasks were stalled.
pub(super) fn parse_psi_total(text: &str) -> Option<Duration> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some.split(' ').find_map(|part| part.strip_prefix("total="))?;
    total.trim().parse().ok().map(Duration::from_micros)
}

/// Returns a CPU quota as a number of processors, from the quota and the period in microseconds;
/// `None` without a quota.
#[expect(clippy::cast_precision_loss, reason = "microseconds of a second")]
pub(super) fn quota(quota: &str, period: &str) -> Option<f64> {
    let quota = quota.trim().parse::<i64>().ok().filter(|quota| *quota > 0)?;
    let period = period.trim().parse::<i64>().ok().filter(|period| *period > 0)?;
    Some(quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_stat_of_both_cgroup_versions_is_parsed() {
        let v2 = "usage_usec 5000\nuser_usec 1\nsystem_usec 2\nnr_periods 7\nnr_throttled 3\nthrottled_usec 250000\n";
        let v1 = "nr_periods 7\nnr_throttled 3\nthrottled_time 250000000\n";
        let throttled_time = Duration::from_millis(250);
        let expected = CpuCounters { usage: None, periods: 7, throttled_periods: 3, throttled_time };
        assert_eq!(parse_cpu_stat(v1), expected);
        assert_eq!(parse_cpu_stat(v2), CpuCounters { usage: Some(Duration::from_millis(5)), ..expected });
    }

    #[test]
    fn cpu_quotas_and_pressure_stalls_are_parsed() {
        assert_eq!(quota("5000", "100000\n"), Some(0.05));
        assert_eq!(quota("max", "100000"), None);
        assert_eq!(quota("-1\n", "100000\n"), None);
        let pressure = "some avg10=0.00 avg60=0.00 avg300=2.18 total=2729338\nfull avg10=0.00 total=1\n";
        assert_eq!(parse_psi_total(pressure), Some(Duration::from_micros(2_729_338)));
        assert_eq!(parse_psi_total(""), None);
    }
}
