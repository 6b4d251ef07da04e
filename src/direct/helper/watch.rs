//! Finds the process that the runtime prepares for a command in the cgroup of the container.
//!
//! The parent of that process is an OCI runtime: a process that the shim of the container has
//! started, and that is in the shim's mount namespace. So processes that the container has started
//! itself are never traced.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::Pid;
use tokio::time::Instant;

use super::{command_line, sys};
use crate::direct::protocol::Watch;

/// A watch of the cgroups of a container.
#[derive(Debug)]
pub(super) struct RuntimeWatch {
    pub(super) request: Watch,
    /// The files `cgroup.procs`.
    files: Vec<File>,
    /// Their text when they were last read.
    members: Vec<u8>,
    /// Whether the processes must be looked at even if the lists have not changed.
    must_look: bool,
    /// Processes that were in the cgroups at the start, and processes of the runtime.
    seen: HashSet<i32>,
    /// The shim of the container.
    shim: i32,
    /// Mount namespace of the shim.
    mounts: PathBuf,
    /// OCI runtimes by the pids of their processes.
    runtimes: HashMap<i32, OciRuntime>,
    /// Start of the watch.
    pub(super) started: Instant,
    /// Traced processes.
    pub(super) traced: Vec<Preparer>,
}

/// Names of the supported OCI runtimes.
const NAMES: [&str; 2] = ["runc", "crun"];

/// Maximum length of the lists of processes in the watched cgroups, in bytes. A look at more than
/// about a thousand processes would delay commands.
const MAX_MEMBERS_BYTES: usize = 8 << 10;

/// A process that the runtime prepares for a command.
#[derive(Clone, Debug)]
pub(super) struct Preparer {
    pub(super) pid: Pid,
    /// The OCI runtime that has created it.
    pub(super) runtime: OciRuntime,
}

/// An OCI runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OciRuntime {
    pub(super) name: &'static str,
    /// Path of its program; empty if it is unknown.
    pub(super) program: String,
}

impl RuntimeWatch {
    /// Starts a watch. Processes that are in the cgroups now are ignored.
    pub(super) fn new(request: Watch, cgroups: &[OwnedFd]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open =
            |cgroup: &OwnedFd| Ok(File::from(openat(cgroup.as_fd(), "cgroup.procs", flags, Mode::empty())?));
        let files: io::Result<Vec<File>> = cgroups.iter().map(open).collect();
        let shim = parent(request.init).ok_or(io::ErrorKind::NotFound)?;
        let mut watch = Self {
            request,
            files: files?,
            members: Vec::new(),
            must_look: false,
            seen: HashSet::new(),
            shim,
            mounts: mount_namespace(shim).ok_or(io::ErrorKind::NotFound)?,
            runtimes: HashMap::new(),
            started: Instant::now(),
            traced: Vec::new(),
        };
        watch.read_members()?;
        watch.seen = watch.pids()?.into_iter().collect();
        Ok(watch)
    }

    /// Looks for new processes, and traces those that the runtime has started.
    pub(super) fn look(&mut self) -> io::Result<()> {
        // crun's process in the cgroup creates the one that executes the command, and ends at once.
        while self.trace_new()? {}
        Ok(())
    }

    /// Traces the new processes that the runtime has started. Returns whether there were any.
    fn trace_new(&mut self) -> io::Result<bool> {
        // Most looks find what the last one has found.
        if !self.read_members()? && !self.must_look {
            return Ok(false);
        }
        self.must_look = false;
        let mut found = false;
        for pid in self.pids()? {
            if self.seen.contains(&pid) {
                continue;
            }
            let (Some(creator), Some(raw)) = (self.runtime_of(pid), Pid::from_raw(pid)) else {
                // It is looked at again, since its parent may end.
                self.must_look = true;
                continue;
            };
            found = true;
            self.seen.insert(pid);
            // As soon as possible: crun's process executes the command within a millisecond.
            if sys::trace_exec(raw, false).is_err() {
                continue;
            }
            match self.oci_runtime(creator) {
                Some(runtime) if self.is_still_new(pid)? => self.traced.push(Preparer { pid: raw, runtime }),
                // It is released when it stops, because no watch knows it.
                _ => sys::interrupt_traced(raw),
            }
        }
        Ok(found)
    }

    /// Returns the parent of a process in the cgroup if it is an OCI runtime, or a process of one.
    /// An orphan of the container has another parent: its init process, that of its sandbox, or the
    /// shim.
    fn runtime_of(&self, pid: i32) -> Option<i32> {
        let creator = parent(pid)?;
        let is_runtime = || {
            parent(creator) == Some(self.shim)
                && mount_namespace(creator).is_some_and(|mounts| mounts == self.mounts)
        };
        (self.traced(creator).is_some() || is_runtime()).then_some(creator)
    }

    /// Returns whether a traced process is the one that was found: its pid may have been used again
    /// before it was traced. Its parent may have ended.
    fn is_still_new(&mut self, pid: i32) -> io::Result<bool> {
        let is_child = parent(pid) == Some(self.shim) || self.runtime_of(pid).is_some();
        self.must_look |= self.read_members()?;
        Ok(is_child && self.pids()?.contains(&pid))
    }

    /// Returns the OCI runtime that a process executes, or that has created it; `None` if it is not
    /// supported.
    fn oci_runtime(&mut self, pid: i32) -> Option<OciRuntime> {
        if let Some(traced) = self.traced(pid) {
            return Some(traced.runtime.clone());
        }
        if let Some(known) = self.runtimes.get(&pid) {
            return Some(known.clone());
        }
        let runtime = OciRuntime::executed_by(pid)?;
        self.runtimes.insert(pid, runtime.clone());
        Some(runtime)
    }

    /// Returns whether a traced process has not entered the container yet.
    pub(super) fn is_outside(&self, preparer: &Preparer) -> bool {
        mount_namespace(preparer.pid.as_raw_nonzero().get()).is_some_and(|mounts| mounts == self.mounts)
    }

    /// Returns the traced process with this pid.
    fn traced(&self, pid: i32) -> Option<&Preparer> {
        self.traced.iter().find(|traced| traced.pid.as_raw_nonzero().get() == pid)
    }

    /// Reads the lists of processes in the cgroups. Returns whether they have changed.
    fn read_members(&mut self) -> io::Result<bool> {
        let mut text = vec![0; MAX_MEMBERS_BYTES];
        let mut length = 0;
        for file in &self.files {
            let mut offset = 0;
            loop {
                let read = file.read_at(&mut text[length..], offset)?;
                length += read;
                offset += read as u64;
                if length == text.len() {
                    return Err(io::Error::other("it has too many processes"));
                }
                if read == 0 {
                    break;
                }
            }
        }
        text.truncate(length);
        let has_changed = text != self.members;
        self.members = text;
        Ok(has_changed)
    }

    /// Returns the processes in the cgroups, as they were last read.
    fn pids(&self) -> io::Result<Vec<i32>> {
        let text = std::str::from_utf8(&self.members).map_err(io::Error::other)?;
        let mut pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        // A parent is looked at before its children, unless pids have started again from 1.
        pids.sort_unstable();
        Ok(pids)
    }
}

impl OciRuntime {
    /// Returns the OCI runtime that a process executes.
    fn executed_by(pid: i32) -> Option<Self> {
        let called = String::from_utf8(command_line(pid)?.into_iter().next()?).ok()?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?.to_string_lossy().into_owned();
        Self::new(program, called)
    }

    /// Returns the OCI runtime whose program has this path, and that was called by this name.
    fn new(program: String, called: String) -> Option<Self> {
        // The program may be a copy in memory, such as `/memfd:runc_cloned:/proc/self/exe`. That of
        // crun is in a mount that is gone, and has the path `/`.
        let name = [&program, &called].into_iter().find_map(|text| {
            let copy = text.strip_prefix("/memfd:").unwrap_or_default();
            NAMES.into_iter().find(|name| is_named(text, name) || copy.starts_with(name))
        })?;
        let mut paths = [program, called].into_iter();
        let program = paths.find(|path| path.starts_with('/') && is_named(path, name));
        Some(Self { name, program: program.unwrap_or_default() })
    }
}

/// Returns whether the last part of a path is a name. The file may have been replaced.
fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(" (deleted)").unwrap_or(path).rsplit('/').next() == Some(name)
}

/// Returns the name of the mount namespace of a process.
fn mount_namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// Returns the pid of the parent of a process.
fn parent(pid: i32) -> Option<i32> {
    // The parent is among the first fields. The name before it has at most 15 bytes.
    let mut start = [0; 128];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut start).ok()?;
    let (_, after) = std::str::from_utf8(&start[..length]).ok()?.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oci_runtime_is_recognized_by_its_program_or_the_name_by_which_it_was_called() {
        let runtime = |program: &str, called: &str| {
            OciRuntime::new(program.to_owned(), called.to_owned())
                .map(|OciRuntime { name, program }| (name, program))
        };
        let known = |name, program: &str| Some((name, program.to_owned()));
        assert_eq!(runtime("/usr/sbin/runc", "runc"), known("runc", "/usr/sbin/runc"));
        assert_eq!(runtime("/opt/bin/runc (deleted)", "runc"), known("runc", "/opt/bin/runc (deleted)"));
        let copy = "/memfd:runc_cloned:/proc/self/exe (deleted)";
        assert_eq!(runtime(copy, "/usr/sbin/runc"), known("runc", "/usr/sbin/runc"));
        assert_eq!(runtime("/", "/usr/bin/crun"), known("crun", "/usr/bin/crun"));
        assert_eq!(runtime("/", "crun"), known("crun", ""));
        for (program, called) in [
            ("/usr/bin/containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v2"),
            ("/usr/bin/runc-helper", "runc-helper"),
            ("/runc/sh", "sh"),
            ("/memfd:x (deleted)", "x"),
        ] {
            assert_eq!(runtime(program, called), None, "{program}");
        }
    }
}
