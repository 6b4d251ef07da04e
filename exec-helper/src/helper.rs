//! The requests of probeshim, and the processes that the helper has started or traces.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use prost::Message as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use rustix::thread::CapabilitySet;
use signal_hook::consts::SIGCHLD;

use crate::child::{self, Child};
use crate::command::is_executed_by;
use crate::namespaces::OwnNamespaces;
use crate::packet::{MAX_ENVIRONMENT_BYTES, MAX_PACKET_BYTES, receive, send};
use crate::process_list::{EntryNumber, ProcessList};
use crate::protocol::{
    Difference, Exited, HelperCommand, HelperEvent, HelperReply, HelperRequest, LAUNCH_DESCRIPTORS, Launch,
    NotRecorded, NotStarted, Recorded, Snapshot, Watch, now,
};
use crate::sandbox;
use crate::snapshot::{self, differences};
use crate::sys::{self, Forked, WaitStatus};
use crate::watch::{RuntimeProgram, Traced, Watches};

/// Error of a request of which not all descriptors have arrived.
const MISSING_DESCRIPTORS: &str =
    "the helper did not get all descriptors, such as because of too many open files";

/// Runs the helper until probeshim has closed its end of the socket, which is standard input. Fails
/// if standard input is not a socket, or the helper cannot be confined.
pub fn run() -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    // Errors cannot be reported from the sandbox.
    if socket_type(&socket)? != SocketType::SEQPACKET {
        return Err(Errno::PROTOTYPE.into());
    }
    sandbox::enter(socket.as_fd())?;
    let (children, wakes) = UnixStream::pair()?;
    children.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, wakes)?;
    let mut helper = Helper {
        socket,
        namespaces: OwnNamespaces::open()?,
        own_pidfd: pidfd_open(getpid(), PidfdFlags::empty())?,
        known_capabilities: child::known_capabilities(),
        execs: HashMap::new(),
        watches: Watches::default(),
        list: None,
        buffer: vec![0; MAX_PACKET_BYTES],
    };
    helper.serve(&children)
}

/// Error after which the helper must end.
#[derive(Debug, thiserror::Error)]
#[error("the helper cannot return to its namespaces: {0}")]
struct HelperFailure(io::Error);

impl From<HelperFailure> for io::Error {
    fn from(failure: HelperFailure) -> Self {
        Self::other(failure)
    }
}

/// State of the helper.
struct Helper {
    socket: OwnedFd,
    namespaces: OwnNamespaces,
    /// Pidfd of the helper, by which its children notice its end.
    own_pidfd: OwnedFd,
    /// The capabilities that the kernel knows.
    known_capabilities: CapabilitySet,
    execs: HashMap<Pid, RunningExec>,
    watches: Watches,
    /// The list of this process and the execs; `None` if probeshim keeps none.
    list: Option<ProcessList>,
    buffer: Vec<u8>,
}

/// A process of an exec.
#[derive(Debug)]
struct RunningExec {
    exec: u64,
    pidfd: OwnedFd,
    created_at: i64,
    /// Its entry in the list of processes.
    entry: Option<EntryNumber>,
    /// Record with which the process is compared at its exec.
    expected: Option<Snapshot>,
    /// Reason for which the process was killed at its exec.
    refusal: Option<NotStarted>,
}

impl Helper {
    fn serve(&mut self, children: &UnixStream) -> io::Result<()> {
        loop {
            let mut ready = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
            let wait = self.watches.until_next_look().map(|wait| wait.min(Duration::from_secs(1)));
            let wait = wait.map(|wait| Timespec {
                tv_sec: wait.as_secs().cast_signed(),
                tv_nsec: wait.subsec_nanos().into(),
            });
            match poll(&mut ready, wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [request, child] = ready.map(|descriptor| !descriptor.revents().is_empty());
            if child {
                // The bytes only wake the helper.
                while io::Read::read(&mut &*children, &mut [0; 64]).is_ok_and(|read| read > 0) {}
            }
            // Children are looked at even without a byte, which costs one system call.
            while let Some((pid, status)) = sys::next_wait_status() {
                self.on_status(pid, status)?;
            }
            for ended in self.watches.look() {
                self.reply(HelperEvent::NotRecorded(ended))?;
            }
            if request && !self.on_request()? {
                return Ok(());
            }
        }
    }

    /// Handles a request. Returns false once probeshim has closed its end.
    fn on_request(&mut self) -> io::Result<bool> {
        let received = receive::<HelperRequest>(self.socket.as_fd(), &mut self.buffer)?;
        let Some((request, descriptors)) = received else {
            self.kill_all();
            return Ok(false);
        };
        match request.command {
            Some(HelperCommand::Launch(launch)) => {
                let exec = launch.exec;
                if let Err(error) = self.launch(*launch, descriptors) {
                    if error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<HelperFailure>) {
                        return Err(error);
                    }
                    let reason = error.to_string();
                    let refusal = NotStarted { exec, reason, differences: Vec::new() };
                    self.reply(HelperEvent::NotStarted(refusal))?;
                }
            }
            Some(HelperCommand::Kill(exec)) => {
                for running in self.execs.values().filter(|running| running.exec == exec) {
                    // The process may have exited, and is reaped next.
                    let _ = pidfd_send_signal(&running.pidfd, Signal::KILL);
                }
            }
            Some(HelperCommand::Watch(request)) => self.watch(request, &descriptors)?,
            Some(HelperCommand::Unwatch(watch)) => self.watches.end(watch),
            Some(HelperCommand::Ping(_)) => self.reply(HelperEvent::Pong(true))?,
            // Without a list, a child still ends with the helper, unless it changes its privileges.
            Some(HelperCommand::ListProcesses(_)) => {
                self.list = descriptors.into_iter().next().and_then(|it| ProcessList::create(it.into()).ok());
            }
            None => {}
        }
        Ok(true)
    }

    /// Starts the child of a launch.
    fn launch(&mut self, mut launch: Launch, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let descriptors: [OwnedFd; LAUNCH_DESCRIPTORS] =
            descriptors.try_into().map_err(|_| io::Error::other(MISSING_DESCRIPTORS))?;
        let [_, _, _, init, cgroup] = &descriptors;
        let attributes = launch.attributes.as_ref().ok_or(io::ErrorKind::InvalidData)?;
        // A child that must be traced waits until it is.
        let gate = launch.expected.is_some().then(rustix::pipe::pipe).transpose()?;
        let created_at = now();
        self.namespaces.enter(init.as_fd(), attributes.oom_score_adj)?;
        let forked = sys::fork_into_cgroup(cgroup.as_fd());
        if let Ok(Forked::Child) = forked {
            let child = Child {
                argv: &launch.argv,
                attributes,
                descriptors: &descriptors,
                helper: self.own_pidfd.as_fd(),
                gate: gate.map(|(reader, _)| reader),
                known_capabilities: self.known_capabilities,
            };
            child.run();
        }
        // A helper that stays in the container must end. Its end kills the child.
        self.namespaces.restore().map_err(HelperFailure)?;
        let Forked::Parent { pid, pidfd } = forked? else { unreachable!("the child does not return") };
        let entry = self.list.as_mut().and_then(|list| list.add(pid).ok());
        let (exec, expected) = (launch.exec, launch.take_expected());
        if expected.is_some()
            && let Err(error) = sys::trace_child(pid)
        {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            let reason = format!("the process cannot be traced: {error}");
            let refusal = Some(NotStarted { exec, reason, differences: Vec::new() });
            self.execs.insert(pid, RunningExec { exec, pidfd, created_at, entry, expected: None, refusal });
            return Ok(());
        }
        if let Some((_, writer)) = gate {
            // A child that has been killed meanwhile does not read.
            let _ = rustix::io::write(&writer, &[0]);
        }
        self.execs.insert(pid, RunningExec { exec, pidfd, created_at, entry, expected, refusal: None });
        Ok(())
    }

    fn on_status(&mut self, pid: Pid, status: WaitStatus) -> io::Result<()> {
        match status {
            WaitStatus::Exited(code) => return self.on_exit(pid, code),
            WaitStatus::StoppedWithGroup if !self.is_traced(pid) => sys::detach(pid, libc::SIGSTOP),
            WaitStatus::StoppedWithGroup => sys::listen_traced(pid),
            // The first stop of a process that a traced one has created.
            WaitStatus::StoppedBeforeSignal(0) if self.watches.adopt(pid) => sys::continue_traced(pid, 0),
            WaitStatus::StoppedBeforeSignal(signal) if !self.is_traced(pid) => sys::detach(pid, signal),
            WaitStatus::StoppedBeforeSignal(signal) => sys::continue_traced(pid, signal),
            WaitStatus::StoppedAtFork => {
                // Its creator may end before it stops.
                if let Some(created) = sys::created_process(pid) {
                    self.watches.adopt_from(created, pid);
                }
                sys::continue_traced(pid, 0);
            }
            WaitStatus::StoppedAtExec => match self.execs.get_mut(&pid) {
                Some(running) => compare(pid, running),
                None => self.record(pid)?,
            },
        }
        Ok(())
    }

    /// Returns whether a traced process is still to be looked at.
    fn is_traced(&self, pid: Pid) -> bool {
        self.execs.contains_key(&pid) || self.watches.is_traced(pid)
    }

    fn on_exit(&mut self, pid: Pid, code: i32) -> io::Result<()> {
        self.watches.release(pid);
        let Some(running) = self.execs.remove(&pid) else { return Ok(()) };
        let RunningExec { exec, created_at, refusal, pidfd, entry, .. } = running;
        drop(pidfd);
        if let (Some(list), Some(entry)) = (&mut self.list, entry) {
            list.remove(entry);
        }
        self.reply(match refusal {
            Some(refusal) => HelperEvent::NotStarted(refusal),
            None => HelperEvent::Exited(Exited { exec, code, created_at, ended_at: now() }),
        })
    }

    /// Records a process of the runtime at its exec, if it executes the watched command.
    fn record(&mut self, pid: Pid) -> io::Result<()> {
        let Some(Traced { request, runtime, is_outside }) = self.watches.traced(pid) else {
            sys::detach(pid, 0);
            return Ok(());
        };
        let watch = request.number;
        let raw = pid.as_raw_nonzero().get();
        if !is_executed_by(raw, &request.argv) {
            if is_outside {
                // The runtime executes a copy of itself before it enters the container.
                sys::continue_traced(pid, 0);
            } else {
                // Another command of the runtime, which may execute the watched one itself.
                self.watches.release(pid);
                sys::detach(pid, 0);
            }
            return Ok(());
        }
        let recorded = snapshot::read(pid).and_then(|snapshot| Ok((snapshot, sys::seccomp_filters(pid)?)));
        sys::detach(pid, 0);
        let not_recorded =
            |reason, is_lasting| HelperEvent::NotRecorded(NotRecorded { watch, reason, is_lasting });
        let event = match recorded {
            Ok((snapshot, _)) if environment_bytes(&snapshot) > MAX_ENVIRONMENT_BYTES => {
                let reason =
                    format!("the environment of the container is longer than {MAX_ENVIRONMENT_BYTES} bytes");
                not_recorded(reason, true)
            }
            Ok((snapshot, filters)) => {
                let RuntimeProgram { name, program } = runtime;
                let runtime = name.to_owned();
                let recorded = Recorded { watch, runtime, snapshot: Some(snapshot), filters, program };
                let event = HelperEvent::Recorded(recorded);
                if HelperReply::for_event(event.clone()).encoded_len() <= MAX_PACKET_BYTES {
                    event
                } else {
                    let reason = format!("the record of the process is longer than {MAX_PACKET_BYTES} bytes");
                    not_recorded(reason, false)
                }
            }
            Err(error) => not_recorded(error.to_string(), false),
        };
        self.watches.end(watch);
        self.reply(event)
    }

    fn watch(&mut self, request: Watch, cgroups: &[OwnedFd]) -> io::Result<()> {
        let number = request.number;
        let started = match cgroups {
            [] => Err(io::Error::other(MISSING_DESCRIPTORS)),
            cgroups => self.watches.start(request, cgroups),
        };
        started.or_else(|error| {
            let reason = format!("the container cannot be watched: {error}");
            self.reply(HelperEvent::NotRecorded(NotRecorded { watch: number, reason, is_lasting: false }))
        })
    }

    fn reply(&self, event: HelperEvent) -> io::Result<()> {
        send(self.socket.as_fd(), &HelperReply::for_event(event), &[])
    }

    fn kill_all(&self) {
        for running in self.execs.values() {
            let _ = pidfd_send_signal(&running.pidfd, Signal::KILL);
        }
    }
}

/// Compares a process that is stopped at its exec with its record. Releases it if there is no
/// difference, and kills it otherwise.
fn compare(pid: Pid, running: &mut RunningExec) {
    let Some(expected) = running.expected.take() else {
        sys::detach(pid, 0);
        return;
    };
    let refusal = match snapshot::read(pid) {
        Ok(found) => {
            let differences = differences(&expected, &found);
            (!differences.is_empty()).then(|| (describe(&differences), differences))
        }
        Err(error) => Some((format!("the process cannot be compared: {error}"), Vec::new())),
    };
    let exec = running.exec;
    running.refusal = refusal.map(|(reason, differences)| NotStarted { exec, reason, differences });
    if running.refusal.is_some() {
        let _ = pidfd_send_signal(&running.pidfd, Signal::KILL);
    }
    sys::detach(pid, 0);
}

/// Returns the length of the environment of a process.
fn environment_bytes(snapshot: &Snapshot) -> usize {
    snapshot.value("environ").map_or(0, <[u8]>::len)
}

/// Returns the names of the fields that differ.
fn describe(differences: &[Difference]) -> String {
    let names: Vec<&str> = differences.iter().map(|difference| difference.field.as_str()).collect();
    format!("the process would differ in: {}", names.join(", "))
}
