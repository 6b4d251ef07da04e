//! Properties of this node that become part of pods.

mod allocatable;
mod cpus;
mod labels;
mod resolv_conf;

use std::fs;
use std::path::{Path, PathBuf};

use procfs::Current as _;
use rustix::fs::{statfs, statvfs};

use crate::manifest::pod::{Amounts, Dns, HUGE_PAGES_PREFIX};
use crate::manifest::quantity::Quantity;
use crate::net::node_ip;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};

pub(super) use resolv_conf::{ResolvConfError, merge_options};

/// Path of the node's resolver configuration.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Mount point of the control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// File system type of version 2 of control groups (`linux/magic.h`).
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// Mount point of sysfs.
const SYSFS: &str = "/sys";

/// Directory in which the kernel lists the sizes of huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Properties of this node.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub(super) name: String,
    /// IP address of the node.
    pub(super) address: String,
    /// Size of the memory in bytes.
    pub(super) memory: u64,
    /// Whether version 2 of control groups has all controllers.
    pub(super) is_cgroup_v2: bool,
    /// Preallocated huge pages in bytes, by the names of their resources.
    pub(super) huge_pages: Amounts,
    /// Size of the file system with the pods' directories in bytes.
    pub(super) storage: u64,
    /// Sizes of huge pages in the notation of the CRI: `2MB`, `1GB`.
    pub(super) page_sizes: Vec<String>,
    /// Path of the node's resolver configuration.
    pub(super) resolv_conf: PathBuf,
    /// Number of processors.
    pub(super) cpus: usize,
    /// Paths of sysfs that are hidden from containers on this node.
    pub(super) thermal_throttle: Vec<String>,
    /// Whether the kernel enforces AppArmor profiles.
    pub(super) has_apparmor: bool,
    /// Content of the node's `/etc/hosts`.
    pub(super) etc_hosts: String,
    /// Directory of the pods' logs.
    pub(super) logs: PathBuf,
    /// Whether the logs of removed pods are kept.
    pub(super) keep_logs: bool,
    /// Directory of the pods' directories.
    pub(super) pods: PathBuf,
    /// State directory. A label with its path distinguishes our pods from those of other
    /// probeshims.
    pub(super) state: String,
}

impl NodeInfo {
    /// Returns this node with these directories. `keep_logs`: the logs of removed pods are kept.
    pub(super) fn detect(logs: PathBuf, keep_logs: bool, pods: PathBuf, state: String) -> Self {
        let name = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        let memory = procfs::Meminfo::current().map_or(0, |meminfo| meminfo.mem_total);
        let etc_hosts = read_to_string(Path::new("/etc/hosts"), MAX_SMALL_FILE_BYTES).unwrap_or_default();
        let pages = huge_pages(Path::new(HUGE_PAGES));
        Self {
            name,
            address: node_ip(),
            memory,
            is_cgroup_v2: is_cgroup_v2(Path::new(CGROUPS)),
            huge_pages: pages.iter().map(HugePages::resource).collect(),
            storage: storage_size(&pods),
            page_sizes: pages.iter().map(HugePages::size_name).collect(),
            resolv_conf: PathBuf::from(RESOLV_CONF),
            cpus: cpus::online_cpus(Path::new(SYSFS)),
            thermal_throttle: cpus::thermal_throttle_paths(Path::new(SYSFS)),
            has_apparmor: has_apparmor(Path::new(SYSFS)),
            etc_hosts,
            logs,
            keep_logs,
            pods,
            state,
        }
    }

    /// Reads the resolver configuration of the node.
    pub(super) fn dns(&self) -> Result<Dns, ResolvConfError> {
        resolv_conf::read(&self.resolv_conf)
    }
}

/// Returns whether a mount point of control groups has version 2, as opposed to version 1 or both
/// (kubelet: `libcontainer/cgroups`: `IsCgroup2UnifiedMode`).
fn is_cgroup_v2(root: &Path) -> bool {
    statfs(root).is_ok_and(|found| u64::try_from(found.f_type) == Ok(CGROUP2_SUPER_MAGIC))
}

/// Returns whether AppArmor is enabled (kubelet: `libcontainer/apparmor`: `IsEnabled`).
fn has_apparmor(sysfs: &Path) -> bool {
    let enabled = read_to_string(&sysfs.join("module/apparmor/parameters/enabled"), MAX_SMALL_FILE_BYTES);
    sysfs.join("kernel/security/apparmor").exists() && enabled.is_ok_and(|text| text.starts_with('Y'))
}

/// Returns the size in bytes of the file system of a directory, which may not exist yet.
fn storage_size(dir: &Path) -> u64 {
    let found = dir.ancestors().find_map(|dir| statvfs(dir).ok());
    found.map_or(0, |found| found.f_blocks.saturating_mul(found.f_frsize))
}

/// Huge pages of one size.
struct HugePages {
    /// Size of a page in KiB.
    size: u64,
    /// Number of preallocated pages.
    count: u64,
}

impl HugePages {
    /// Returns the name of the resource, and the size of all pages in bytes.
    fn resource(&self) -> (String, Quantity) {
        let size = match self.size {
            size if size % (1 << 20) == 0 => format!("{}Gi", size >> 20),
            size if size % (1 << 10) == 0 => format!("{}Mi", size >> 10),
            size => format!("{size}Ki"),
        };
        let total = self.size.saturating_mul(self.count).saturating_mul(1 << 10);
        (format!("{HUGE_PAGES_PREFIX}{size}"), Quantity::from_units(total))
    }

    /// Returns the size of a page in the notation of the CRI.
    fn size_name(&self) -> String {
        match self.size {
            size if size % (1 << 20) == 0 => format!("{}GB", size >> 20),
            size if size % (1 << 10) == 0 => format!("{}MB", size >> 10),
            size => format!("{size}KB"),
        }
    }
}

/// Returns the huge pages of the node, by size. The kernel names each directory by the size in kB:
/// `hugepages-2048kB`.
fn huge_pages(dir: &Path) -> Vec<HugePages> {
    let pages = |entry: fs::DirEntry| -> Option<HugePages> {
        let name = entry.file_name().to_string_lossy().into_owned();
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok();
        Some(HugePages { size, count: count.and_then(|count| count.trim().parse().ok()).unwrap_or(0) })
    };
    let mut all: Vec<HugePages> =
        fs::read_dir(dir).into_iter().flatten().flatten().filter_map(pages).collect();
    all.sort_unstable_by_key(|pages| pages.size);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apparmor_is_enabled_if_the_kernel_says_so_and_has_its_file_system() {
        let sysfs = tempfile::tempdir().unwrap();
        let parameters = sysfs.path().join("module/apparmor/parameters");
        fs::create_dir_all(&parameters).unwrap();
        fs::write(parameters.join("enabled"), "Y\n").unwrap();
        assert!(!has_apparmor(sysfs.path()));
        fs::create_dir_all(sysfs.path().join("kernel/security/apparmor")).unwrap();
        assert!(has_apparmor(sysfs.path()));
        fs::write(parameters.join("enabled"), "N\n").unwrap();
        assert!(!has_apparmor(sysfs.path()));
    }

    #[test]
    fn huge_pages_have_the_names_of_the_cri_and_are_counted_where_they_are_preallocated() {
        let dir = tempfile::tempdir().unwrap();
        for (size, count) in [("1048576", "0\n"), ("2048", "3\n"), ("64", "")] {
            let pages = dir.path().join(format!("hugepages-{size}kB"));
            fs::create_dir(&pages).unwrap();
            fs::write(pages.join("nr_hugepages"), count).unwrap();
        }
        let pages = huge_pages(dir.path());
        let names: Vec<String> = pages.iter().map(HugePages::size_name).collect();
        assert_eq!(names.join(" "), "64KB 2MB 1GB");
        let resources: Amounts = pages.iter().map(HugePages::resource).collect();
        let expected = [("hugepages-64Ki", 0), ("hugepages-2Mi", 6 << 20), ("hugepages-1Gi", 0)];
        let expected = expected.map(|(name, bytes)| (name.to_owned(), Quantity::from_units(bytes)));
        assert_eq!(resources, Amounts::from(expected));
    }
}
