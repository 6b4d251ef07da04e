//! Control groups of a container, in version 1 or 2: their directories and files.

use std::fs;
use std::iter::repeat;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Process;

use super::counters::{Counters, field_value, parse_cpu_stat, parse_psi_total, quota};
use super::{Pids, PidsScope, PressureStall};

/// Directories of a container's controllers; `None` if a controller is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cgroup {
    version: Version,
    cpu: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    freezer: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Version {
    V1,
    #[default]
    V2,
}

/// A mounted hierarchy of control groups.
#[derive(Clone, Debug)]
pub(super) struct CgroupMount {
    version: Version,
    /// Controllers of the hierarchy, in version 1.
    controllers: Vec<String>,
    /// Path of the mounted part in the hierarchy.
    root: String,
    point: PathBuf,
}

/// A line of `/proc/PID/cgroup`: controllers (none in version 2) and a path.
pub(super) type Membership = (Vec<String>, String);

/// Returns the mounted hierarchies.
pub(super) fn mounts() -> Vec<CgroupMount> {
    let mounts = Process::myself().and_then(|own| own.mountinfo());
    let mounts = mounts.map(|mounts| mounts.0).unwrap_or_default();
    let cgroups = mounts.into_iter().filter_map(|mount| {
        let version = match mount.fs_type.as_str() {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        let controllers = mount.super_options.into_keys().collect();
        Some(CgroupMount { version, controllers, root: mount.root, point: mount.mount_point })
    });
    cgroups.collect()
}

/// Returns the path up to the component that contains the container's id. The container itself
/// creates deeper control groups, such as `init.scope` of a systemd in it.
fn container_prefix<'a>(path: &'a str, container: &str) -> Option<&'a str> {
    let at = path.find(container).filter(|_| !container.is_empty())?;
    let end = path[at..].find('/').map_or(path.len(), |slash| at + slash);
    Some(&path[..end])
}

impl Cgroup {
    /// Finds the control groups of a container by its first process. Returns `None` if the process
    /// is not on this host, or if the container's id is in no path of its control groups.
    pub(super) fn find(pid: i32, container: &str, mounts: &[CgroupMount]) -> Option<Self> {
        let process = Process::new(pid).ok()?;
        let memberships = process.cgroups().ok()?.0.into_iter();
        let memberships = memberships.map(|group| (group.controllers, group.pathname));
        Self::from_memberships(&memberships.collect::<Vec<_>>(), container, mounts)
    }

    pub(super) fn from_memberships<'a>(
        memberships: &'a [Membership],
        container: &str,
        mounts: &[CgroupMount],
    ) -> Option<Self> {
        let own = || {
            let part =
                |(controllers, path): &'a Membership| Some((controllers, container_prefix(path, container)?));
            memberships.iter().filter_map(part)
        };
        let v1 = |controller: &str| {
            let has = |controllers: &[String]| controllers.iter().any(|has| has == controller);
            let (_, path) = own().find(|(controllers, _)| has(controllers))?;
            mounts.iter().find(|mount| mount.version == Version::V1 && has(&mount.controllers))?.dir(path)
        };
        let v2 = || {
            let (_, path) = own().find(|(controllers, _)| controllers.iter().all(String::is_empty))?;
            let dir = mounts.iter().find(|mount| mount.version == Version::V2)?.dir(path)?;
            // A hybrid host also has a hierarchy of version 2, without controllers.
            dir.join("cpu.stat").exists().then_some(dir)
        };
        if let Some(cpu) = v1("cpu") {
            return Some(Self {
                version: Version::V1,
                cpu: Some(cpu),
                cpuacct: v1("cpuacct"),
                memory: v1("memory"),
                pids: v1("pids"),
                freezer: v1("freezer"),
            });
        }
        let dir = v2()?;
        let same = || Some(dir.clone());
        let (cpu, memory, pids, freezer) = (same(), same(), same(), same());
        Some(Self { version: Version::V2, cpu, cpuacct: None, memory, pids, freezer })
    }

    /// Reads the current counters.
    pub(super) fn counters(&self) -> Counters {
        let mut cpu = read(self.cpu.as_ref(), "cpu.stat").map(|text| parse_cpu_stat(&text));
        if let Some(cpu) = &mut cpu {
            let used = || read(self.cpuacct.as_ref(), "cpuacct.usage")?.trim().parse().ok();
            cpu.usage = cpu.usage.or_else(|| used().map(Duration::from_nanos));
        }
        let oom_file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let oom_kills = read(self.memory.as_ref(), oom_file).and_then(|text| field_value(&text, "oom_kill"));
        let pressure = match self.version {
            Version::V1 => None,
            Version::V2 => self.cpu.as_deref().and_then(|dir| pressures(dir, ".pressure")),
        };
        Counters { cpu, pressure, oom_kills }
    }

    /// Returns the CPU quota as a number of processors; `None` without a quota.
    pub(super) fn quota(&self) -> Option<f64> {
        match self.version {
            Version::V1 => {
                let [of, period] =
                    ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|file| read(self.cpu.as_ref(), file));
                quota(&of?, &period?)
            }
            Version::V2 => {
                let both = read(self.cpu.as_ref(), "cpu.max")?;
                let (of, period) = both.split_once(' ')?;
                quota(of, period)
            }
        }
    }

    /// Returns the number of processes of the control group with the least room for more: the
    /// container's, or one of those that contain it, up to the root of the hierarchy. A kubelet's
    /// limit is that of the pod.
    pub(super) fn pids(&self) -> Option<Pids> {
        let own = self.pids.as_deref()?;
        let read = |dir: &Path, scope| {
            let number = |file| fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok();
            Some(Pids { current: number("pids.current")?, max: number("pids.max"), scope })
        };
        let scopes = [PidsScope::Container, PidsScope::Pod].into_iter().chain(repeat(PidsScope::Pods));
        let all = own.ancestors().zip(scopes).map_while(|(dir, scope)| read(dir, scope));
        let room = |pids: &Pids| pids.max.map_or(u64::MAX, |max| max.saturating_sub(pids.current));
        all.min_by_key(room)
    }

    /// Returns the number of processes and threads of the container, zombies included.
    pub(super) fn tasks(&self) -> Option<u64> {
        read(self.pids.as_ref(), "pids.current")?.trim().parse().ok()
    }

    pub(super) fn is_frozen(&self) -> Option<bool> {
        match self.version {
            Version::V1 => Some(read(self.freezer.as_ref(), "freezer.state")?.trim() != "THAWED"),
            Version::V2 => {
                field_value(&read(self.freezer.as_ref(), "cgroup.events")?, "frozen").map(|is| is == 1)
            }
        }
    }

    /// Returns the pids of the container's processes, in the pid namespace of probeshim.
    pub(super) fn processes(&self) -> Vec<i32> {
        let list = read(self.pids.as_ref().or(self.cpu.as_ref()), "cgroup.procs").unwrap_or_default();
        list.lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

/// Reads the stall times of a control group (`cpu.pressure`) or of the node (`/proc/pressure/cpu`).
/// `ending` is the end of the file names.
pub(super) fn pressures(dir: &Path, ending: &str) -> Option<PressureStall> {
    let of = |what: &str| parse_psi_total(&fs::read_to_string(dir.join(format!("{what}{ending}"))).ok()?);
    Some(PressureStall { cpu: of("cpu")?, io: of("io")?, memory: of("memory")? })
}

fn read(dir: Option<&PathBuf>, file: &str) -> Option<String> {
    fs::read_to_string(dir?.join(file)).ok()
}

impl CgroupMount {
    /// Returns the directory of a path of the hierarchy; `None` if the path is not mounted.
    fn dir(&self, path: &str) -> Option<PathBuf> {
        let inside = if self.root == "/" { path } else { path.strip_prefix(&self.root)? };
        Some(self.point.join(inside.trim_start_matches('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, file: &str, text: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(file), text).unwrap();
    }

    fn mount(version: Version, controllers: &[&str], root: &str, point: PathBuf) -> CgroupMount {
        let controllers = controllers.iter().map(ToString::to_string).collect();
        CgroupMount { version, controllers, root: root.to_owned(), point }
    }

    fn membership(controllers: &[&str], path: &str) -> Membership {
        (controllers.iter().map(ToString::to_string).collect(), path.to_owned())
    }

    #[test]
    fn cgroup_v1_is_read_from_the_directories_of_its_controllers() {
        let here = tempfile::tempdir().unwrap();
        let at = |controller: &str| here.path().join(controller).join("kubepods/c0ffee");
        write(&at("cpu"), "cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 1000000\n");
        write(&at("cpu"), "cpu.cfs_quota_us", "5000\n");
        write(&at("cpu"), "cpu.cfs_period_us", "100000\n");
        write(&at("memory"), "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        write(&at("pids"), "pids.current", "3\n");
        write(&at("pids"), "pids.max", "max\n");
        write(&at("freezer"), "freezer.state", "FROZEN\n");
        let controllers = [["cpu"], ["memory"], ["pids"], ["freezer"]];
        let mounts: Vec<CgroupMount> = controllers
            .iter()
            .map(|names| mount(Version::V1, names, "/", here.path().join(names[0])))
            .chain([mount(Version::V2, &[], "/", here.path().join("unified"))])
            .collect();
        let members: Vec<Membership> = controllers
            .iter()
            .map(|names| membership(names, "/kubepods/c0ffee"))
            .chain([membership(&[""], "/kubepods/c0ffee")])
            .collect();
        let cgroup = Cgroup::from_memberships(&members, "c0ffee", &mounts).unwrap();
        let counters = cgroup.counters();
        assert_eq!(counters.cpu.unwrap().throttled_periods, 4);
        assert_eq!((counters.oom_kills, counters.pressure), (Some(2), None));
        assert_eq!((cgroup.quota(), cgroup.is_frozen()), (Some(0.05), Some(true)));
        assert_eq!(cgroup.tasks(), Some(3));
        let own = Pids { current: 3, max: None, scope: PidsScope::Container };
        assert_eq!(cgroup.pids(), Some(own));
        write(&at("pids").join(".."), "pids.current", "9\n");
        write(&at("pids").join(".."), "pids.max", "10\n");
        let pod = Pids { current: 9, max: Some(10), scope: PidsScope::Pod };
        assert_eq!(cgroup.pids(), Some(pod), "the pod has room for one process");
    }

    #[test]
    fn cgroup_v2_is_read_from_one_directory() {
        let here = tempfile::tempdir().unwrap();
        let dir = here.path().join("cri-containerd-c0ffee.scope");
        write(&dir, "cpu.stat", "usage_usec 10\nnr_periods 9\nnr_throttled 4\nthrottled_usec 1000\n");
        write(&dir, "cpu.max", "max 100000\n");
        write(&dir, "memory.events", "low 0\noom 1\noom_kill 2\n");
        write(&dir, "cgroup.events", "populated 1\nfrozen 0\n");
        write(&dir, "cgroup.procs", "12\n13\n");
        for what in ["cpu", "io", "memory"] {
            write(&dir, &format!("{what}.pressure"), "some avg10=0.00 total=1000\n");
        }
        // Only a part of the hierarchy is mounted, as in a container.
        let mounts = [mount(Version::V2, &[], "/kubepods", here.path().to_owned())];
        let members = [membership(&[], "/kubepods/cri-containerd-c0ffee.scope/init.scope")];
        let cgroup = Cgroup::from_memberships(&members, "c0ffee", &mounts).unwrap();
        let counters = cgroup.counters();
        assert_eq!(counters.pressure.unwrap().io, Duration::from_millis(1));
        assert_eq!((counters.oom_kills, cgroup.quota()), (Some(2), None));
        assert_eq!((cgroup.is_frozen(), cgroup.processes()), (Some(false), vec![12, 13]));
        assert_eq!(Cgroup::from_memberships(&members, "another", &mounts), None, "not the container's own");
    }
}
