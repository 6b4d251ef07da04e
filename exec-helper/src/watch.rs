//! Finds the process that the runtime prepares for a command in the cgroup of the container.
//!
//! The parent of that process is an OCI runtime: a process that the shim of the container has
//! started, and that is in the shim's mount namespace. So processes that the container has started
//! itself are never traced. crun's process in the cgroup creates another one, which executes the
//! command, and ends at once; the kernel traces that too.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::command::command_line;
use crate::pidfd::has_exited;
use crate::protocol::{NotRecorded, Watch};
use crate::snapshot::stat_fields;
use crate::sys;

/// The watches, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: HashMap<u64, RuntimeWatch>,
    /// Time of the next look.
    next_look: Option<Instant>,
}

/// A traced process, as its watch knows it.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) request: Watch,
    pub(crate) runtime: RuntimeProgram,
    /// Whether the process has not entered the container yet.
    pub(crate) is_outside: bool,
}

/// A watch of the cgroups of a container.
#[derive(Debug)]
struct RuntimeWatch {
    request: Watch,
    /// The files `cgroup.procs`.
    files: Vec<File>,
    /// Their text when they were last read.
    members: Vec<u8>,
    /// Processes that were looked at, or were in the cgroups at the start.
    seen: HashSet<i32>,
    /// The shim of the container.
    shim: i32,
    /// Mount namespace of the shim.
    mounts: PathBuf,
    /// Start of the watch.
    started: Instant,
    /// Traced processes.
    traced: Vec<Preparer>,
}

/// Minimum interval at which a watch looks for new processes in a cgroup.
const WATCH_INTERVAL: Duration = Duration::from_micros(100);

/// Minimum of the interval, as a multiple of the time that a look takes.
const WATCH_SHARE: u32 = 3;

/// Maximum duration of a watch. A runtime that has started no process by then has another reason to
/// take long.
const WATCH_LIMIT: Duration = Duration::from_secs(10);

/// Names of the supported OCI runtimes.
const OCI_RUNTIMES: [&str; 2] = ["runc", CRUN];
const CRUN: &str = "crun";

/// Maximum length of the lists of processes in the watched cgroups, in bytes. A look at more than
/// about a thousand processes would delay commands.
const MAX_MEMBERS_BYTES: usize = 8 << 10;

/// A process that the runtime prepares for a command.
#[derive(Debug)]
struct Preparer {
    pid: Pid,
    /// The OCI runtime that has created it.
    runtime: RuntimeProgram,
}

/// Program of an OCI runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeProgram {
    pub(crate) name: &'static str,
    /// Its path; empty if it is unknown.
    pub(crate) program: String,
}

impl Watches {
    /// Starts a watch.
    pub(crate) fn start(&mut self, request: Watch, cgroups: &[OwnedFd]) -> io::Result<()> {
        let number = request.number;
        self.watches.insert(number, RuntimeWatch::new(request, cgroups)?);
        Ok(())
    }

    /// Ends a watch. Its traced processes are released when they stop.
    pub(crate) fn end(&mut self, watch: u64) {
        for traced in self.watches.remove(&watch).into_iter().flat_map(|watch| watch.traced) {
            sys::interrupt_traced(traced.pid);
        }
    }

    /// Returns the time until the next look; `None` without watches.
    pub(crate) fn until_next_look(&self) -> Option<Duration> {
        let until = self.next_look.map(|at| at.saturating_duration_since(Instant::now()));
        (!self.watches.is_empty()).then(|| until.unwrap_or_default())
    }

    /// Looks for processes that the runtime prepares, if it is time. Returns the watches that have
    /// ended without one.
    pub(crate) fn look(&mut self) -> Vec<NotRecorded> {
        if self.until_next_look().is_none_or(|until| !until.is_zero()) {
            return Vec::new();
        }
        let started = Instant::now();
        let mut ended = Vec::new();
        for (number, watch) in &mut self.watches {
            let reason = if let Err(error) = watch.look() {
                format!("the cgroup cannot be read: {error}")
            } else if watch.started.elapsed() > WATCH_LIMIT {
                "no process of the runtime was recorded in time".to_owned()
            } else {
                continue;
            };
            ended.push(NotRecorded { watch: *number, reason, is_lasting: false });
        }
        for ended in &ended {
            self.end(ended.watch);
        }
        // Commands must not wait for watches of containers with many processes.
        self.next_look = Some(Instant::now() + WATCH_INTERVAL.max(started.elapsed() * WATCH_SHARE));
        ended
    }

    /// Returns whether a watch traces a process.
    pub(crate) fn is_traced(&self, pid: Pid) -> bool {
        self.watches.values().any(|watch| watch.traced(pid).is_some())
    }

    /// Returns what the watch of a traced process knows of it.
    pub(crate) fn traced(&self, pid: Pid) -> Option<Traced> {
        self.watches.values().find_map(|watch| {
            let Preparer { runtime, .. } = watch.traced(pid)?;
            let (request, runtime) = (watch.request.clone(), runtime.clone());
            Some(Traced { request, runtime, is_outside: watch.has_mounts_of_shim(pid) })
        })
    }

    /// Adds a stopped process to the watch that traces its parent. Returns whether there is one.
    pub(crate) fn adopt(&mut self, pid: Pid) -> bool {
        let creator = parent(pid.as_raw_nonzero().get()).and_then(Pid::from_raw);
        creator.is_some_and(|creator| self.adopt_from(pid, creator))
    }

    /// Adds a process to the watch that traces its creator. Returns whether there is one.
    pub(crate) fn adopt_from(&mut self, pid: Pid, creator: Pid) -> bool {
        self.watches.values_mut().any(|watch| watch.adopt(pid, creator))
    }

    /// Forgets a traced process.
    pub(crate) fn release(&mut self, pid: Pid) {
        for watch in self.watches.values_mut() {
            watch.traced.retain(|traced| traced.pid != pid);
        }
    }
}

impl RuntimeWatch {
    /// Starts a watch. Processes that are in the cgroups now are ignored.
    fn new(request: Watch, cgroups: &[OwnedFd]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open =
            |cgroup: &OwnedFd| Ok(File::from(openat(cgroup.as_fd(), "cgroup.procs", flags, Mode::empty())?));
        let files: io::Result<Vec<File>> = cgroups.iter().map(open).collect();
        let shim = parent(request.init).ok_or_else(|| io::Error::other("the shim is unknown"))?;
        let mut watch = Self {
            request,
            files: files?,
            members: Vec::new(),
            seen: HashSet::new(),
            shim,
            mounts: mount_namespace(shim).ok_or(io::ErrorKind::NotFound)?,
            started: Instant::now(),
            traced: Vec::new(),
        };
        watch.read_members()?;
        watch.seen = watch.pids()?.into_iter().collect();
        Ok(watch)
    }

    /// Looks for new processes, and traces those that the runtime has created.
    fn look(&mut self) -> io::Result<()> {
        // Most looks find what the last one has found.
        if !self.read_members()? {
            return Ok(());
        }
        for pid in self.pids()? {
            if self.seen.insert(pid)
                && let Some(preparer) = self.trace(pid)
            {
                self.traced.push(preparer);
            }
        }
        Ok(())
    }

    /// Traces a process if a supported runtime has created it.
    fn trace(&self, pid: i32) -> Option<Preparer> {
        let pid = Pid::from_raw(pid)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let runtime = self.creator(pid.as_raw_nonzero().get())?;
        sys::trace_runtime(pid).ok()?;
        // The pid may have been used again before the process was traced.
        if has_exited(&process) == Ok(true) {
            // It is released when it stops, because no watch knows it.
            sys::interrupt_traced(pid);
            return None;
        }
        Some(Preparer { pid, runtime })
    }

    /// Returns the OCI runtime that has created a process in the cgroup. An orphan of the container
    /// has another parent: its init process, that of its sandbox, or the shim.
    fn creator(&self, pid: i32) -> Option<RuntimeProgram> {
        let creator = parent(pid)?;
        if parent(creator)? != self.shim || mount_namespace(creator)? != self.mounts {
            return None;
        }
        RuntimeProgram::executed_by(creator)
    }

    /// Adds a process if this watch traces its creator. Returns whether it does.
    fn adopt(&mut self, pid: Pid, creator: Pid) -> bool {
        let Some(Preparer { runtime, .. }) = self.traced(creator) else { return false };
        let runtime = runtime.clone();
        if self.traced(pid).is_none() {
            self.seen.insert(pid.as_raw_nonzero().get());
            self.traced.push(Preparer { pid, runtime });
        }
        true
    }

    fn traced(&self, pid: Pid) -> Option<&Preparer> {
        self.traced.iter().find(|traced| traced.pid == pid)
    }

    /// Returns whether a process is in the mount namespace of the shim.
    fn has_mounts_of_shim(&self, pid: Pid) -> bool {
        mount_namespace(pid.as_raw_nonzero().get()).is_some_and(|mounts| mounts == self.mounts)
    }

    /// Reads the lists of processes in the cgroups. Returns whether they have changed.
    fn read_members(&mut self) -> io::Result<bool> {
        let mut text = Vec::with_capacity(MAX_MEMBERS_BYTES);
        for file in &mut self.files {
            file.rewind()?;
            let room = MAX_MEMBERS_BYTES - text.len();
            file.take(room as u64).read_to_end(&mut text)?;
        }
        if text.len() == MAX_MEMBERS_BYTES {
            return Err(io::Error::other("it has too many processes"));
        }
        let has_changed = text != self.members;
        self.members = text;
        Ok(has_changed)
    }

    /// Returns the processes in the cgroups, as they were last read.
    fn pids(&self) -> io::Result<Vec<i32>> {
        let text = std::str::from_utf8(&self.members).map_err(io::Error::other)?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

impl RuntimeProgram {
    /// Returns the OCI runtime that a process executes.
    fn executed_by(pid: i32) -> Option<Self> {
        let called = String::from_utf8(command_line(pid)?.into_iter().next()?).ok()?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?.to_string_lossy().into_owned();
        Self::new(program, called)
    }

    /// Returns the OCI runtime whose program has this path, and that was called by this name.
    fn new(program: String, called: String) -> Option<Self> {
        // crun executes a copy of itself in a mount that is gone, whose path is `/`. The program
        // may also be a copy in memory, such as `/memfd:runc_cloned:/proc/self/exe`.
        let copy = program.strip_prefix("/memfd:").unwrap_or_default();
        let is_executed = |name: &str| is_named(&program, name) || copy.starts_with(name);
        let is_called = |name: &str| name == CRUN && program == "/" && is_named(&called, name);
        let name = OCI_RUNTIMES.into_iter().find(|name| is_executed(name) || is_called(name))?;
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

/// Returns the parent of a process.
fn parent(pid: i32) -> Option<i32> {
    // The parent is among the first fields. The name before it has at most 15 bytes of any kind.
    let mut start = [0; 128];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut start).ok()?;
    stat_fields(&String::from_utf8_lossy(&start[..length])).nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oci_runtime_is_recognized_by_its_program_or_the_name_by_which_it_was_called() {
        let runtime = |program: &str, called: &str| {
            RuntimeProgram::new(program.to_owned(), called.to_owned())
                .map(|RuntimeProgram { name, program }| (name, program))
        };
        let known = |name, program: &str| Some((name, program.to_owned()));
        assert_eq!(runtime("/usr/sbin/runc", "runc"), known("runc", "/usr/sbin/runc"));
        assert_eq!(runtime("/opt/bin/runc (deleted)", "runc"), known("runc", "/opt/bin/runc (deleted)"));
        let copy = "/memfd:runc_cloned:/proc/self/exe (deleted)";
        assert_eq!(runtime(copy, "/usr/sbin/runc"), known("runc", "/usr/sbin/runc"));
        assert_eq!(runtime("/", "/usr/bin/crun"), known("crun", "/usr/bin/crun"));
        assert_eq!(runtime("/", "crun"), known("crun", ""));
        assert_eq!(runtime("/", "runc"), None, "runc has the path of its file or of a copy in memory");
        for (program, called) in [
            ("/usr/bin/containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v2"),
            ("/usr/bin/runc-helper", "runc-helper"),
            ("/runc/sh", "sh"),
            ("/usr/bin/youki", "runc"),
            ("/memfd:x (deleted)", "x"),
        ] {
            assert_eq!(runtime(program, called), None, "{program}");
        }
    }
}
