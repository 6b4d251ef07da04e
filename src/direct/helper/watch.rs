//! Finds the process that the runtime prepares for a command in the cgroup of the container.
//!
//! The parent of that process is an OCI runtime outside of the cgroups of the container, so
//! processes that the container has started itself are never traced.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::Pid;
use tokio::time::Instant;

use super::sys;
use crate::direct::init_process::is_below;
use crate::direct::protocol::Watch;

/// A watch of the cgroups of a container.
#[derive(Debug)]
pub(super) struct RuntimeWatch {
    pub(super) request: Watch,
    /// The files `cgroup.procs`.
    members: Vec<File>,
    /// Processes that were looked at.
    seen: HashSet<i32>,
    /// Start of the watch.
    pub(super) started: Instant,
    /// Traced processes.
    pub(super) traced: Vec<Preparer>,
}

/// Names of the supported OCI runtimes.
const OCI_RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Maximum number of processes in a watched cgroup. A look at more would delay commands.
const MAX_PROCESSES: usize = 1000;

/// A process that the runtime prepares for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preparer {
    pub(super) pid: Pid,
    /// Name of its parent, the OCI runtime.
    pub(super) runtime: &'static str,
    /// Path of the program of its parent.
    pub(super) program: String,
    /// Mount namespace of its parent.
    mounts: PathBuf,
}

impl Preparer {
    /// Returns whether the process has not entered the container yet.
    pub(super) fn is_outside(&self) -> bool {
        mount_namespace(self.pid.as_raw_nonzero().get()).is_some_and(|mounts| mounts == self.mounts)
    }
}

impl RuntimeWatch {
    /// Starts a watch. Processes that are in the cgroups now are ignored.
    pub(super) fn new(request: Watch, cgroups: &[OwnedFd]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open =
            |cgroup: &OwnedFd| Ok(File::from(openat(cgroup.as_fd(), "cgroup.procs", flags, Mode::empty())?));
        let members: io::Result<Vec<File>> = cgroups.iter().map(open).collect();
        let mut watch = Self {
            request,
            members: members?,
            seen: HashSet::new(),
            started: Instant::now(),
            traced: Vec::new(),
        };
        watch.seen = watch.pids()?.into_iter().collect();
        Ok(watch)
    }

    /// Looks for new processes, and traces those that the runtime has started.
    pub(super) fn look(&mut self) -> io::Result<()> {
        for pid in self.pids()? {
            if !self.seen.insert(pid) {
                continue;
            }
            let Some(preparer) = self.preparer(pid) else { continue };
            if sys::trace_exec(preparer.pid, false).is_err() {
                continue;
            }
            // The pid may have been used again before the process was traced.
            if self.preparer(pid).as_ref() == Some(&preparer) && self.pids()?.contains(&pid) {
                self.traced.push(preparer);
            } else {
                // It is released when it stops, because no watch knows it.
                sys::interrupt_traced(preparer.pid);
            }
        }
        Ok(())
    }

    /// Returns a process in the cgroup if the runtime prepares it for a command. Its parent is an
    /// OCI runtime outside of the cgroup. An orphan of the container has another parent: its init
    /// process, that of its sandbox, or the runtime's shim.
    fn preparer(&self, pid: i32) -> Option<Preparer> {
        let parent = parent(pid)?;
        // crun's process in the cgroup creates another one, which executes the command.
        if let Some(traced) = self.traced.iter().find(|traced| traced.pid.as_raw_nonzero().get() == parent) {
            return Some(Preparer { pid: Pid::from_raw(pid)?, ..traced.clone() });
        }
        if is_in_cgroup(parent, &self.request.cgroup) {
            return None;
        }
        let program = fs::read_link(format!("/proc/{parent}/exe")).ok()?.to_string_lossy().into_owned();
        let runtime = oci_runtime(&program)?;
        Some(Preparer { pid: Pid::from_raw(pid)?, runtime, program, mounts: mount_namespace(parent)? })
    }

    /// Returns the processes in the cgroups.
    fn pids(&mut self) -> io::Result<Vec<i32>> {
        let mut text = String::new();
        for file in &mut self.members {
            file.rewind()?;
            file.read_to_string(&mut text)?;
        }
        let mut pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        // A parent is looked at before its children, unless pids have started again from 1.
        pids.sort_unstable();
        if pids.len() > MAX_PROCESSES {
            return Err(io::Error::other(format!("it has more than {MAX_PROCESSES} processes")));
        }
        Ok(pids)
    }
}

/// Returns the OCI runtime whose program has this path. The program may have been replaced, or be a
/// copy in memory such as `/memfd:runc_cloned:/proc/self/exe (deleted)`.
fn oci_runtime(program: &str) -> Option<&'static str> {
    let program = program.strip_suffix(" (deleted)").unwrap_or(program);
    let file = program.rsplit('/').next().unwrap_or_default();
    let copy = program.strip_prefix("/memfd:").unwrap_or_default();
    OCI_RUNTIMES.iter().find(|runtime| file == **runtime || copy.starts_with(**runtime)).copied()
}

/// Returns the name of the mount namespace of a process.
fn mount_namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// Returns whether a process is in a cgroup or in one below it. A process that cannot be read may
/// be in it.
fn is_in_cgroup(pid: i32, cgroup: &str) -> bool {
    let Ok(cgroups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return true };
    is_below(&cgroups, cgroup)
}

/// Returns the pid of the parent of a process.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_program_of_an_oci_runtime_prepares_commands() {
        for program in
            ["/usr/sbin/runc", "/opt/bin/runc (deleted)", "/memfd:runc_cloned:/proc/self/exe (deleted)"]
        {
            assert_eq!(oci_runtime(program), Some("runc"), "{program}");
        }
        assert_eq!(oci_runtime("/usr/bin/crun"), Some("crun"));
        for program in
            ["/usr/bin/containerd-shim-runc-v2", "/usr/bin/runc-helper", "/runc/sh", "/memfd:x (deleted)"]
        {
            assert_eq!(oci_runtime(program), None, "{program}");
        }
    }
}
