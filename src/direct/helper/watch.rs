//! Finds the process that the runtime prepares for a command in the cgroup of the container.
//!
//! The parent of that process is an OCI runtime outside of the cgroups of the container, so
//! processes that the container has started itself are never traced.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};

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

/// Part of the file names of the supported OCI runtimes. A runtime that executes itself from memory
/// has a file such as `memfd:crun (deleted)`.
const OCI_RUNTIMES: [&str; 2] = ["runc", "crun"];

/// A process that the runtime prepares for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preparer {
    pub(super) pid: Pid,
    /// Name of the process before its exec.
    pub(super) name: String,
    /// Path of the program of its parent, the OCI runtime.
    pub(super) program: String,
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
        let (name, parent) = name_and_parent(pid)?;
        if is_in_cgroup(parent, &self.request.cgroup) {
            return None;
        }
        let program = fs::read_link(format!("/proc/{parent}/exe")).ok()?;
        let is_runtime = OCI_RUNTIMES
            .iter()
            .any(|runtime| program.file_name().is_some_and(|file| file.to_string_lossy().contains(runtime)));
        let program = program.to_string_lossy().into_owned();
        is_runtime.then_some(Preparer { pid: Pid::from_raw(pid)?, name, program })
    }

    /// Returns the processes in the cgroups.
    fn pids(&mut self) -> io::Result<Vec<i32>> {
        let mut text = String::new();
        for file in &mut self.members {
            file.rewind()?;
            file.read_to_string(&mut text)?;
        }
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

/// Returns whether a process is in a cgroup or in one below it. A process that cannot be read may
/// be in it.
fn is_in_cgroup(pid: i32, cgroup: &str) -> bool {
    let Ok(cgroups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return true };
    is_below(&cgroups, cgroup)
}

/// Returns the name of a process and the pid of its parent.
fn name_and_parent(pid: i32) -> Option<(String, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name.to_owned(), after.split_whitespace().nth(1)?.parse().ok()?))
}
