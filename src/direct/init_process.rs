//! The init process of a container, and its cgroup.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use procfs::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::file_id::FileId;

/// The init process of a container, in whose namespaces and cgroup commands run.
#[derive(Debug)]
pub(super) struct InitProcess {
    pid: i32,
    pub(super) pidfd: OwnedFd,
    /// The cgroup of the process in the unified hierarchy.
    cgroup: String,
    /// Directory of the cgroup.
    cgroup_dir: PathBuf,
}

/// Version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PasswdVersion {
    file: FileId,
    /// Time of the last change, in seconds and nanoseconds.
    changed: (i64, i64),
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
    /// Opens the init process with this pid.
    pub(super) fn open(pid: i32) -> Result<Self, InitError> {
        let raw = Pid::from_raw(pid).ok_or(InitError::Exited)?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|_| InitError::Exited)?;
        let cgroups = read_cgroups(pid)?;
        let own = read_cgroups(std::process::id().cast_signed())?;
        if v1_lines(&cgroups).ne(v1_lines(&own)) {
            return Err(InitError::CgroupV1);
        }
        let cgroup = unified(&cgroups).ok_or(InitError::CgroupV1)?.to_owned();
        let cgroup_dir = mount_point().ok_or(InitError::NotMounted)?.join(cgroup.trim_start_matches('/'));
        Ok(Self { pid, pidfd, cgroup, cgroup_dir })
    }

    /// Fails if a command must not be run beside the process now.
    pub(super) fn check(&self) -> Result<(), InitError> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // A pidfd is readable once its process has exited.
        if poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0) {
            return Err(InitError::Exited);
        }
        let cgroups = read_cgroups(self.pid)?;
        if unified(&cgroups) != Some(&self.cgroup) {
            return Err(InitError::Moved);
        }
        let path = self.cgroup_dir.join("cgroup.events");
        match fs::read_to_string(&path) {
            Ok(events) if events.lines().any(|line| line == "frozen 1") => Err(InitError::Frozen),
            Ok(_) => Ok(()),
            // The root of the hierarchy cannot be frozen.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.cgroup == "/" => Ok(()),
            Err(error) => Err(InitError::File { path, error }),
        }
    }

    /// Opens the directory of a cgroup of the unified hierarchy.
    pub(super) fn open_cgroup(cgroup: &str) -> Result<OwnedFd, InitError> {
        let path = mount_point().ok_or(InitError::NotMounted)?.join(cgroup.trim_start_matches('/'));
        open_dir(&path)
    }

    /// Opens the cgroups into which the runtime may put a command: that of the process, and the one
    /// above it that is named after the container, if the process has moved. Returns the path of
    /// the uppermost too.
    pub(super) fn watched_cgroups(&self, container_id: &str) -> Result<(Vec<OwnedFd>, String), InitError> {
        let mut dirs = vec![open_dir(&self.cgroup_dir)?];
        let named =
            |dir: &&Path| dir.file_name().is_some_and(|name| name.to_string_lossy().contains(container_id));
        let cgroup = Path::new(&self.cgroup);
        let Some(uppermost) = cgroup.ancestors().skip(1).find(named) else {
            return Ok((dirs, self.cgroup.clone()));
        };
        let depth = cgroup.components().count() - uppermost.components().count();
        if let Some(dir) = self.cgroup_dir.ancestors().nth(depth) {
            dirs.push(open_dir(dir)?);
        }
        Ok((dirs, uppermost.display().to_string()))
    }

    /// Returns whether a process is in the cgroup of the container.
    pub(super) fn shares_cgroup(&self, pid: i32) -> bool {
        read_cgroups(pid).is_ok_and(|cgroups| unified(&cgroups) == Some(&self.cgroup))
    }

    /// Returns the version of the container's `/etc/passwd`; `None` if it has none.
    pub(super) fn passwd_version(&self) -> Option<PasswdVersion> {
        let found = fs::symlink_metadata(format!("/proc/{}/root/etc/passwd", self.pid)).ok()?;
        Some(PasswdVersion {
            file: FileId::from_metadata(&found),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// Returns the path of the unified hierarchy in a `/proc/PID/cgroup`.
pub(super) fn unified(cgroups: &str) -> Option<&str> {
    cgroups.lines().find_map(|line| line.strip_prefix("0::"))
}

fn v1_lines(cgroups: &str) -> impl Iterator<Item = &str> {
    cgroups.lines().filter(|line| !line.starts_with("0::"))
}

fn read_cgroups(pid: i32) -> Result<String, InitError> {
    let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
    fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => InitError::Exited,
        _ => InitError::File { path, error },
    })
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
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_unified_cgroup_is_distinguished_from_those_of_version_1() {
        let cgroups = "9:name=systemd:/\n1:cpu:/kubepods/pod1\n0::/kubepods/pod1\n";
        assert_eq!(unified(cgroups), Some("/kubepods/pod1"));
        assert_eq!(v1_lines(cgroups).collect::<Vec<_>>(), ["9:name=systemd:/", "1:cpu:/kubepods/pod1"]);
    }

    #[test]
    fn a_process_that_has_exited_is_noticed() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let init = InitProcess::open(pid);
        let checked = init.as_ref().map(InitProcess::check);
        // The program ends with its input.
        drop(child.stdin.take());
        child.wait().unwrap();
        if matches!(init, Err(InitError::NotMounted)) {
            return;
        }
        checked.unwrap().unwrap();
        assert!(matches!(init.unwrap().check(), Err(InitError::Exited)));
        assert!(matches!(InitProcess::open(pid), Err(InitError::Exited)));
    }
}
