//! What the processes of containers use, read from /proc.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use procfs::WithCurrentSystemInfo as _;
use procfs::process::Stat;

use super::clock;
use super::container::{ContainerBackend, ProcrunContainer};
use super::processes;
use super::sandbox::ProcrunSandbox;
use crate::cri::v1;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// All processes at one moment, each under its parent.
pub(super) struct ProcSnapshot {
    taken: i64,
    processes: HashMap<i32, Stat>,
    children: HashMap<i32, Vec<i32>>,
}

/// Figures of some processes.
#[derive(Clone, Copy, Debug, Default)]
struct ResourceUsage {
    cpu_nanos: u64,
    resident: u64,
    minor_faults: u64,
    major_faults: u64,
    processes: u64,
}

impl ProcSnapshot {
    /// Looks at every process of the machine.
    pub(super) fn take() -> Self {
        let processes: HashMap<i32, Stat> = processes::all().map(|stat| (stat.pid, stat)).collect();
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for stat in processes.values() {
            children.entry(stat.ppid).or_default().push(stat.pid);
        }
        Self { taken: clock::now(), processes, children }
    }

    /// What a container uses. One that does not run uses nothing, and only its folder is told.
    pub(super) fn container_usage(&self, container: &ProcrunContainer) -> v1::ContainerStats {
        self.stats(container, self.descendants(container))
    }

    fn stats(&self, container: &ProcrunContainer, usage: Option<ResourceUsage>) -> v1::ContainerStats {
        v1::ContainerStats {
            attributes: Some(container.attributes()),
            cpu: usage.map(|usage| usage.cpu(self.taken)),
            memory: usage.map(|usage| usage.memory(self.taken)),
            writable_layer: Some(dir(&container.dir)),
            ..v1::ContainerStats::default()
        }
    }

    /// What a sandbox's containers use together.
    pub(super) fn sandbox_usage(
        &self,
        sandbox: &ProcrunSandbox,
        containers: &[Arc<ProcrunContainer>],
    ) -> v1::PodSandboxStats {
        let mut sum = ResourceUsage::default();
        let mut each = Vec::new();
        for container in containers {
            let own = self.descendants(container);
            let usage = own.unwrap_or_default();
            sum.cpu_nanos += usage.cpu_nanos;
            sum.resident += usage.resident;
            sum.minor_faults += usage.minor_faults;
            sum.major_faults += usage.major_faults;
            sum.processes += usage.processes;
            each.push(self.stats(container, own));
        }
        let linux = v1::LinuxPodSandboxStats {
            cpu: Some(sum.cpu(self.taken)),
            memory: Some(sum.memory(self.taken)),
            process: Some(v1::ProcessUsage { timestamp: self.taken, process_count: value(sum.processes) }),
            containers: each,
            ..v1::LinuxPodSandboxStats::default()
        };
        v1::PodSandboxStats { attributes: Some(sandbox.attributes()), linux: Some(linux), windows: None }
    }

    /// What the processes below a container's monitor use, and what those used that it has reaped.
    fn descendants(&self, container: &ProcrunContainer) -> Option<ResourceUsage> {
        // Once it has ended, its monitor's pid may be another's.
        if !container.stage().is_running() {
            return None;
        }
        let monitor = match container.runner.get()? {
            ContainerBackend::Processes { monitor, .. } => monitor.pid(),
            ContainerBackend::Synthetic => return Some(ResourceUsage::default()),
        };
        let mut usage = ResourceUsage::default();
        let reaped = self.processes.get(&monitor)?;
        usage.cpu_nanos += nanos(reaped.cutime.cast_unsigned() + reaped.cstime.cast_unsigned());
        let mut waiting = vec![monitor];
        while let Some(parent) = waiting.pop() {
            for child in self.children.get(&parent).into_iter().flatten() {
                usage.add(&self.processes[child]);
                waiting.push(*child);
            }
        }
        Some(usage)
    }
}

impl ResourceUsage {
    fn add(&mut self, stat: &Stat) {
        let reaped = stat.cutime.cast_unsigned() + stat.cstime.cast_unsigned();
        self.cpu_nanos += nanos(stat.utime + stat.stime + reaped);
        self.resident += stat.rss_bytes().get();
        self.minor_faults += stat.minflt;
        self.major_faults += stat.majflt;
        self.processes += 1;
    }

    fn cpu(self, timestamp: i64) -> v1::CpuUsage {
        let usage_core_nano_seconds = value(self.cpu_nanos);
        v1::CpuUsage { timestamp, usage_core_nano_seconds, ..v1::CpuUsage::default() }
    }

    fn memory(self, timestamp: i64) -> v1::MemoryUsage {
        v1::MemoryUsage {
            timestamp,
            working_set_bytes: value(self.resident),
            usage_bytes: value(self.resident),
            rss_bytes: value(self.resident),
            page_faults: value(self.minor_faults + self.major_faults),
            major_page_faults: value(self.major_faults),
            ..v1::MemoryUsage::default()
        }
    }
}

/// What the files below a folder take.
pub(super) fn dir(path: &Path) -> v1::FilesystemUsage {
    let (mut bytes, mut files) = (0, 0);
    let mut waiting = vec![path.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(file) = entry.metadata() else { continue };
            bytes += file.len();
            files += 1;
            // The metadata is that of a link, not of what it leads to.
            if file.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    v1::FilesystemUsage {
        timestamp: clock::now(),
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: path.display().to_string() }),
        used_bytes: value(bytes),
        inodes_used: value(files),
    }
}

fn nanos(ticks: u64) -> u64 {
    ticks * (SECOND / procfs::ticks_per_second())
}

#[expect(clippy::unnecessary_wraps, reason = "fields of the CRI are optional")]
fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}
