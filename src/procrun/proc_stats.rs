//! Resource usage of the processes of containers, read from /proc.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use procfs::WithCurrentSystemInfo as _;
use procfs::process::Stat;

use super::clock;
use super::container::{ContainerBackend, ProcrunContainer};
use super::sandbox::ProcrunSandbox;
use crate::cri::v1;
use crate::processes;

/// Number of nanoseconds in a second.
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// All processes at one time, indexed by parent.
pub(super) struct ProcSnapshot {
    timestamp: i64,
    processes: HashMap<i32, Stat>,
    children: HashMap<i32, Vec<i32>>,
}

/// Resource usage of some processes.
#[derive(Clone, Copy, Debug, Default)]
struct ResourceUsage {
    cpu_nanos: u64,
    rss_bytes: u64,
    minor_faults: u64,
    major_faults: u64,
    process_count: u64,
}

impl ProcSnapshot {
    /// Reads all processes of the machine.
    pub(super) fn capture() -> Self {
        let processes: HashMap<i32, Stat> = processes::all().map(|stat| (stat.pid, stat)).collect();
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for stat in processes.values() {
            children.entry(stat.ppid).or_default().push(stat.pid);
        }
        Self { timestamp: clock::now(), processes, children }
    }

    /// Returns the stats of a container. If the container does not run, they include only its
    /// directory.
    pub(super) fn container_stats(&self, container: &ProcrunContainer) -> v1::ContainerStats {
        self.container_stats_from(container, self.descendants_usage(container))
    }

    fn container_stats_from(
        &self,
        container: &ProcrunContainer,
        usage: Option<ResourceUsage>,
    ) -> v1::ContainerStats {
        v1::ContainerStats {
            attributes: Some(container.attributes()),
            cpu: usage.map(|usage| usage.cpu(self.timestamp)),
            memory: usage.map(|usage| usage.memory(self.timestamp)),
            writable_layer: Some(directory_usage(&container.dir)),
            ..v1::ContainerStats::default()
        }
    }

    /// Returns the stats of a sandbox: the sums over its containers, and the stats of each
    /// container.
    pub(super) fn sandbox_stats(
        &self,
        sandbox: &ProcrunSandbox,
        containers: &[Arc<ProcrunContainer>],
    ) -> v1::PodSandboxStats {
        let mut total = ResourceUsage::default();
        let mut containers_stats = Vec::new();
        for container in containers {
            let container_usage = self.descendants_usage(container);
            let usage = container_usage.unwrap_or_default();
            total.cpu_nanos += usage.cpu_nanos;
            total.rss_bytes += usage.rss_bytes;
            total.minor_faults += usage.minor_faults;
            total.major_faults += usage.major_faults;
            total.process_count += usage.process_count;
            containers_stats.push(self.container_stats_from(container, container_usage));
        }
        let linux = v1::LinuxPodSandboxStats {
            cpu: Some(total.cpu(self.timestamp)),
            memory: Some(total.memory(self.timestamp)),
            process: Some(v1::ProcessUsage {
                timestamp: self.timestamp,
                process_count: uint64(total.process_count),
            }),
            containers: containers_stats,
            ..v1::LinuxPodSandboxStats::default()
        };
        v1::PodSandboxStats { attributes: Some(sandbox.attributes()), linux: Some(linux), windows: None }
    }

    /// Returns the usage of the processes below a container's monitor, including reaped processes.
    /// Returns `None` if the container does not run.
    fn descendants_usage(&self, container: &ProcrunContainer) -> Option<ResourceUsage> {
        // After the container's end, the monitor's pid may belong to another process.
        if !container.stage().is_running() {
            return None;
        }
        let monitor = match container.backend.get()? {
            ContainerBackend::Processes { monitor, .. } => monitor.pid(),
            ContainerBackend::Synthetic => return Some(ResourceUsage::default()),
        };
        let mut usage = ResourceUsage::default();
        let reaped = self.processes.get(&monitor)?;
        usage.cpu_nanos += ticks_to_nanos(reaped.cutime.cast_unsigned() + reaped.cstime.cast_unsigned());
        let mut pending = vec![monitor];
        while let Some(parent) = pending.pop() {
            for child in self.children.get(&parent).into_iter().flatten() {
                usage.add(&self.processes[child]);
                pending.push(*child);
            }
        }
        Some(usage)
    }
}

impl ResourceUsage {
    fn add(&mut self, stat: &Stat) {
        let reaped = stat.cutime.cast_unsigned() + stat.cstime.cast_unsigned();
        self.cpu_nanos += ticks_to_nanos(stat.utime + stat.stime + reaped);
        self.rss_bytes += stat.rss_bytes().get();
        self.minor_faults += stat.minflt;
        self.major_faults += stat.majflt;
        self.process_count += 1;
    }

    fn cpu(self, timestamp: i64) -> v1::CpuUsage {
        let usage_core_nano_seconds = uint64(self.cpu_nanos);
        v1::CpuUsage { timestamp, usage_core_nano_seconds, ..v1::CpuUsage::default() }
    }

    fn memory(self, timestamp: i64) -> v1::MemoryUsage {
        v1::MemoryUsage {
            timestamp,
            working_set_bytes: uint64(self.rss_bytes),
            usage_bytes: uint64(self.rss_bytes),
            rss_bytes: uint64(self.rss_bytes),
            page_faults: uint64(self.minor_faults + self.major_faults),
            major_page_faults: uint64(self.major_faults),
            ..v1::MemoryUsage::default()
        }
    }
}

/// Returns the usage of the files below a directory.
pub(super) fn directory_usage(path: &Path) -> v1::FilesystemUsage {
    let (mut bytes, mut files) = (0, 0);
    let mut pending = vec![path.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(file) = entry.metadata() else { continue };
            bytes += file.len();
            files += 1;
            // The metadata is that of a symbolic link itself, not of its target.
            if file.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    v1::FilesystemUsage {
        timestamp: clock::now(),
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: path.display().to_string() }),
        used_bytes: uint64(bytes),
        inodes_used: uint64(files),
    }
}

fn ticks_to_nanos(ticks: u64) -> u64 {
    ticks * (NANOS_PER_SECOND / procfs::ticks_per_second())
}

#[expect(clippy::unnecessary_wraps, reason = "fields of the CRI are optional")]
fn uint64(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}
