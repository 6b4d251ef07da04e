//! The init process of a container, and its cgroup.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::{io, iter};

use exec_helper::pidfd::has_exited;
use exec_helper::text::shortened;
use procfs::process::Process;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Size of the buffer for a file of `/proc` or of a cgroup, which the kernel returns in one read.
const PROC_FILE_BYTES: usize = 8192;

/// Maximum length of a cgroup in an error, in bytes. A container can create cgroups below its own.
const MAX_SHOWN_BYTES: usize = 200;

/// The init process of a container, in whose namespaces and cgroup commands run.
#[derive(Debug)]
pub(super) struct InitProcess {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    /// The open `/proc/PID/cgroup`.
    cgroups: File,
    /// The cgroup of the process in the unified hierarchy.
    cgroup: String,
    /// Directory at which the unified hierarchy is mounted.
    hierarchy: PathBuf,
    /// The open `cgroup.events` of the cgroup. The root of the hierarchy, which cannot be frozen,
    /// has none.
    events: Option<File>,
    /// The cgroup of the container: that of the process or one above it, which is named after the
    /// container.
    container_cgroup: String,
}

/// Reason for which commands cannot run beside an init process.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    /// The process has exited.
    #[error("the init process of the container has exited")]
    Exited,
    /// The cgroup of the process has changed since it was opened.
    #[error("the cgroup of the container has changed")]
    Moved,
    /// The cgroup is frozen.
    #[error("the container is paused")]
    Frozen,
    /// No cgroup at or above that of the process has the id of the container in its name, so that
    /// another process may have got the pid.
    #[error("the cgroup of the init process does not name the container: {cgroup}")]
    Unnamed {
        /// The cgroup of the process.
        cgroup: String,
    },
    /// The process is in a hierarchy of cgroup v1.
    #[error("the container has cgroups of version 1")]
    CgroupV1,
    /// The unified hierarchy is not mounted.
    #[error("no cgroup2 file system is mounted")]
    NotMounted,
    /// A file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl InitProcess {
    /// Opens the init process of a container, which has this pid.
    pub(super) fn open(pid: i32, container_id: &str) -> Result<Self, InitError> {
        let raw = Pid::from_raw(pid).ok_or(InitError::Exited)?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|_| InitError::Exited)?;
        let cgroups = open_file(&cgroups_path(pid))?;
        let mut buffer = [0; PROC_FILE_BYTES];
        let found = read_again(&cgroups, &mut buffer).map_err(|_| InitError::Exited)?;
        if v1_lines(found).ne(v1_lines(&read_cgroups(std::process::id().cast_signed())?)) {
            return Err(InitError::CgroupV1);
        }
        let cgroup = unified(found).ok_or(InitError::CgroupV1)?.to_owned();
        // The file is that of another process if the first one has exited before it was opened.
        if has_exited(&pidfd) != Ok(false) {
            return Err(InitError::Exited);
        }
        let Some(container_cgroup) = container_cgroup(&cgroup, container_id).map(str::to_owned) else {
            return Err(InitError::Unnamed { cgroup: shortened(cgroup.as_bytes(), MAX_SHOWN_BYTES) });
        };
        let hierarchy = mount_point().ok_or(InitError::NotMounted)?;
        let events = (cgroup != "/").then(|| open_file(&events_path(&hierarchy, &cgroup))).transpose()?;
        Ok(Self { pid, pidfd, cgroups, cgroup, hierarchy, events, container_cgroup })
    }

    /// Fails if a command must not be run beside the process now.
    pub(super) fn check(&self) -> Result<(), InitError> {
        if has_exited(&self.pidfd) == Ok(true) {
            return Err(InitError::Exited);
        }
        let mut buffer = [0; PROC_FILE_BYTES];
        let cgroups = read_again(&self.cgroups, &mut buffer).map_err(|_| InitError::Exited)?;
        if unified(cgroups) != Some(&self.cgroup) {
            return Err(InitError::Moved);
        }
        let Some(events) = &self.events else { return Ok(()) };
        let events = read_again(events, &mut buffer)
            .map_err(|error| InitError::File { path: events_path(&self.hierarchy, &self.cgroup), error })?;
        if events.lines().any(|line| line == "frozen 1") { Err(InitError::Frozen) } else { Ok(()) }
    }

    /// Opens the directory of a cgroup of the unified hierarchy.
    pub(super) fn open_cgroup(&self, cgroup: &str) -> Result<OwnedFd, InitError> {
        open_dir(&directory(&self.hierarchy, cgroup))
    }

    /// Opens the cgroups into which the runtime may put a command.
    pub(super) fn watched_cgroups(&self) -> Result<Vec<OwnedFd>, InitError> {
        let cgroups = command_cgroups(&self.cgroup, &self.container_cgroup);
        cgroups.into_iter().map(|cgroup| self.open_cgroup(cgroup)).collect()
    }

    /// Returns whether a process is in the cgroup of the container, or in one below it.
    pub(super) fn shares_container(&self, pid: i32) -> bool {
        read_cgroups(pid).is_ok_and(|cgroups| is_below(&cgroups, &self.container_cgroup))
    }
}

/// Returns the path of the unified hierarchy in a `/proc/PID/cgroup`.
pub(super) fn unified(cgroups: &str) -> Option<&str> {
    cgroups.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Returns whether the cgroup in a `/proc/PID/cgroup` is this one, or below it.
fn is_below(cgroups: &str, cgroup: &str) -> bool {
    unified(cgroups).is_some_and(|found| Path::new(found).starts_with(cgroup))
}

/// Returns the cgroup at or above `cgroup` that is named after a container: its name is the id, or
/// has the id between other parts, such as `cri-containerd-ID.scope`.
fn container_cgroup<'a>(cgroup: &'a str, container_id: &str) -> Option<&'a str> {
    let is_part_of_id = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let named = |name: &str| {
        name.match_indices(container_id).any(|(start, id)| {
            let (before, after) = (&name[..start], &name[start + id.len()..]);
            !is_part_of_id(before.chars().next_back()) && !is_part_of_id(after.chars().next())
        })
    };
    let mut dirs = Path::new(cgroup).ancestors().filter(|_| !container_id.is_empty());
    dirs.find(|dir| dir.file_name().and_then(|name| name.to_str()).is_some_and(named))?.to_str()
}

/// Returns the cgroups into which a runtime may put a command: that of the container, the next one
/// on the way to the init process, which is that of crun, and that of the init process.
fn command_cgroups<'a>(init: &'a str, container: &'a str) -> Vec<&'a str> {
    let below: Vec<&Path> =
        Path::new(init).ancestors().take_while(|dir| *dir != Path::new(container)).collect();
    let ends = [below.last(), below.first()].into_iter().flatten().filter_map(|dir| dir.to_str());
    let mut cgroups: Vec<&str> = iter::once(container).chain(ends).collect();
    cgroups.dedup();
    cgroups
}

/// Returns the directory of a cgroup of the unified hierarchy.
fn directory(hierarchy: &Path, cgroup: &str) -> PathBuf {
    hierarchy.join(cgroup.trim_start_matches('/'))
}

fn events_path(hierarchy: &Path, cgroup: &str) -> PathBuf {
    directory(hierarchy, cgroup).join("cgroup.events")
}

fn v1_lines(cgroups: &str) -> impl Iterator<Item = &str> {
    cgroups.lines().filter(|line| !line.starts_with("0::"))
}

fn read_cgroups(pid: i32) -> Result<String, InitError> {
    let path = cgroups_path(pid);
    fs::read_to_string(&path).map_err(|error| file_error(path, error))
}

fn open_file(path: &Path) -> Result<File, InitError> {
    File::open(path).map_err(|error| file_error(path.to_owned(), error))
}

/// Returns the error of a file of the process or of its cgroup, which is gone if the process is.
fn file_error(path: PathBuf, error: io::Error) -> InitError {
    match error.kind() {
        io::ErrorKind::NotFound => InitError::Exited,
        _ => InitError::File { path, error },
    }
}

fn cgroups_path(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/cgroup"))
}

/// Reads an open file of `/proc` or of a cgroup from its start, which returns its present text.
fn read_again<'a>(file: &File, buffer: &'a mut [u8; PROC_FILE_BYTES]) -> io::Result<&'a str> {
    let length = file.read_at(buffer, 0)?;
    std::str::from_utf8(&buffer[..length]).map_err(io::Error::other)
}

/// Returns the place at which the unified hierarchy is mounted.
fn mount_point() -> Option<PathBuf> {
    let mounts = Process::myself().ok()?.mountinfo().ok()?;
    mounts
        .into_iter()
        .find(|mount| mount.fs_type == "cgroup2" && mount.root == "/")
        .map(|mount| mount.mount_point)
}

fn open_dir(path: &Path) -> Result<OwnedFd, InitError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty());
    opened.map_err(|error| InitError::File { path: path.to_owned(), error: error.into() })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn the_unified_cgroup_is_distinguished_from_those_of_version_1() {
        let cgroups = "9:name=systemd:/\n1:cpu:/kubepods/pod1\n0::/kubepods/pod1\n";
        assert_eq!(unified(cgroups), Some("/kubepods/pod1"));
        assert_eq!(v1_lines(cgroups).collect::<Vec<_>>(), ["9:name=systemd:/", "1:cpu:/kubepods/pod1"]);
    }

    #[test]
    fn the_cgroup_of_a_container_is_found_above_that_of_its_init_process() {
        for (cgroup, expected) in [
            (
                "/kubepods.slice/pod1.slice/cri-containerd-c1.scope",
                "/kubepods.slice/pod1.slice/cri-containerd-c1.scope",
            ),
            ("/pod1/cri-containerd-c1.scope/init", "/pod1/cri-containerd-c1.scope"),
            ("/kubepods/besteffort/pod1/c1", "/kubepods/besteffort/pod1/c1"),
            ("/k8s.io/c1/a/b", "/k8s.io/c1"),
            ("/../../odd:parent/c1", "/../../odd:parent/c1"),
            ("/pod1/c1/c1", "/pod1/c1/c1"),
        ] {
            assert_eq!(container_cgroup(cgroup, "c1"), Some(expected), "{cgroup}");
        }
        assert!(is_below("0::/pod1/c1/command\n", "/pod1/c1"));
        assert!(!is_below("0::/pod1/c12\n", "/pod1/c1"));
    }

    #[test]
    fn a_cgroup_that_does_not_name_the_container_is_not_taken_for_its_cgroup() {
        for cgroup in
            ["/", "/other/init", "/pod1/c12", "/pod1/xc1", "/pod1/cri-containerd-c12.scope", "/pod1c1/c"]
        {
            assert_eq!(container_cgroup(cgroup, "c1"), None, "{cgroup}");
        }
        assert_eq!(container_cgroup("/pod1/c1", ""), None);
    }

    #[test]
    fn another_containers_process_that_has_the_pid_is_refused_with_its_cgroup() {
        let process = cat();
        let pid = process.id().cast_signed();
        let opened = InitProcess::open(pid, "c1");
        let cgroups = read_cgroups(pid).unwrap();
        end(process);
        match opened {
            Err(InitError::Unnamed { cgroup }) => assert_eq!(unified(&cgroups), Some(&*cgroup)),
            // The kernel has no unified hierarchy.
            Err(InitError::CgroupV1) => assert_eq!(unified(&cgroups), None),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_is_expected_in_the_cgroup_of_the_container_of_crun_or_of_the_init_process() {
        assert_eq!(command_cgroups("/pod1/c1", "/pod1/c1"), ["/pod1/c1"]);
        assert_eq!(command_cgroups("/pod1/c1/init", "/pod1/c1"), ["/pod1/c1", "/pod1/c1/init"]);
        assert_eq!(
            command_cgroups("/pod1/c1/container/a/init", "/pod1/c1"),
            ["/pod1/c1", "/pod1/c1/container", "/pod1/c1/container/a/init"]
        );
    }

    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Ends a program that reads its input.
    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    fn write_events(cgroup_dir: &Path, events: &str) {
        fs::write(cgroup_dir.join("cgroup.events"), events).unwrap();
    }

    /// Opens a process as an init process whose cgroup has this directory.
    fn init(process: &Child, cgroup_dir: &Path) -> InitProcess {
        write_events(cgroup_dir, "populated 1\nfrozen 0\n");
        let pid = process.id().cast_signed();
        let cgroup = unified(&read_cgroups(pid).unwrap()).unwrap().to_owned();
        InitProcess {
            pid,
            pidfd: pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap(),
            cgroups: open_file(&cgroups_path(pid)).unwrap(),
            events: Some(open_file(&cgroup_dir.join("cgroup.events")).unwrap()),
            container_cgroup: cgroup.clone(),
            cgroup,
            hierarchy: cgroup_dir.to_owned(),
        }
    }

    #[test]
    fn a_process_that_has_exited_or_is_frozen_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let process = cat();
        let init = init(&process, dir.path());
        let running = init.check();
        write_events(dir.path(), "populated 1\nfrozen 1\n");
        let frozen = init.check();
        end(process);
        running.unwrap();
        assert!(matches!(frozen, Err(InitError::Frozen)), "{frozen:?}");
        assert!(matches!(init.check(), Err(InitError::Exited)));
        assert!(matches!(InitProcess::open(init.pid, "c1"), Err(InitError::Exited)));
    }

    #[test]
    fn another_process_with_the_pid_of_an_init_process_is_not_taken_for_it() {
        const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
        let dir = tempfile::tempdir().unwrap();
        let first = cat();
        let init = init(&first, dir.path());
        end(first);
        loop {
            // Only root can choose the next pid. Another process may get it.
            let chosen = fs::write(LAST_PID, (init.pid - 1).to_string()).is_ok();
            let second = cat();
            let has_pid = second.id().cast_signed() == init.pid;
            let checked = init.check();
            end(second);
            assert!(matches!(checked, Err(InitError::Exited)), "{checked:?}");
            if has_pid || !chosen {
                return;
            }
        }
    }
}
