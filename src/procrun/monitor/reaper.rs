//! Processes below a monitor: launched, signalled, reaped, and killed together.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use procfs::process::{ProcState, Stat};
use rustix::io::Errno;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    test_kill_process_group, wait, waitid, waitpid,
};

use super::protocol::{
    Exited, Launch, Launched, MonitorEvent, MonitorReply, Orphan, Refused, Signal, SignalTarget, framed,
};
use crate::gofmt::system_error;
use crate::processes;
use crate::procrun::clock::now;
use crate::procrun::signal;

/// All processes below this monitor.
#[derive(Debug)]
pub(super) struct ProcessTree {
    processes: Mutex<ProcessTable>,
    /// Notified when a process was launched and when all processes are to be killed.
    started: Condvar,
    reports: Mutex<UnixStream>,
}

#[derive(Debug, Default)]
struct ProcessTable {
    /// Launched processes that have not been reaped, by number. Until then their pids are not
    /// reused.
    launched: HashMap<u64, Pid>,
    /// Process groups of launched processes that still have a member.
    groups: HashSet<Pid>,
    /// Number of the first process, which is the container itself.
    first: Option<u64>,
    /// Exit of the first process. It is reported when no process is left.
    first_exit: Option<Exited>,
    /// Whether all processes are to be killed, and none may be launched.
    is_ending: bool,
}

impl ProcessTree {
    pub(super) fn new(reports: UnixStream) -> Self {
        Self { processes: Mutex::default(), started: Condvar::new(), reports: Mutex::new(reports) }
    }

    /// Launches a process in a new process group.
    pub(super) fn launch(&self, launch: Launch, [stdout, stderr]: [OwnedFd; 2]) {
        let wanted = launch.command.unwrap_or_default();
        let mut command = Command::new(&wanted.program);
        if let Some((name, args)) = wanted.args.split_first() {
            command.arg0(name).args(args);
        }
        command.env_clear().current_dir(&wanted.directory).process_group(0);
        command.envs(wanted.envs.iter().map(|env| (&env.key, OsStr::from_bytes(&env.value))));
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        // The lock is held during the launch, so that the reaper finds the process in the table.
        let mut processes = self.processes();
        if processes.is_ending {
            return self.send_refused(launch.process, "the container has exited".to_owned());
        }
        let at = now();
        match command.spawn() {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                processes.launched.insert(launch.process, pid);
                processes.groups.insert(pid);
                processes.first.get_or_insert(launch.process);
                let pid = pid.as_raw_pid();
                self.report(MonitorEvent::Launched(Launched { process: launch.process, pid, at }));
                self.started.notify_all();
            }
            Err(error) => {
                self.send_refused(
                    launch.process,
                    format!("exec {}: {}", wanted.program, system_error(&error)),
                );
            }
        }
    }

    /// Sends a signal. Has no effect if the process has exited.
    pub(super) fn signal(&self, signal: Signal) {
        let processes = self.processes();
        let Some(pid) = processes.launched.get(&signal.process) else { return };
        let Some(number) = rustix::process::Signal::from_named_raw(signal.number) else { return };
        let _ = match signal.target() {
            SignalTarget::Process => kill_process(*pid, number),
            SignalTarget::Group => kill_process_group(*pid, number),
        };
    }

    /// Kills every process, and prevents launches.
    pub(super) fn kill_all(&self) {
        let mut processes = self.processes();
        processes.is_ending = true;
        kill_children();
        self.started.notify_all();
    }

    /// Reaps processes until the container has ended and no process is left.
    pub(super) fn reap(&self) {
        let mut processes = self.processes();
        while processes.first.is_none() && !processes.is_ending {
            processes = self.started.wait(processes).unwrap_or_else(PoisonError::into_inner);
        }
        drop(processes);
        // Waits without reaping: the process is identified and reaped under the lock.
        let look = |options| waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | options);
        loop {
            match look(WaitIdOptions::empty()) {
                Err(Errno::INTR) => continue,
                // No child is left.
                Err(_) => break,
                Ok(_) => {}
            }
            while matches!(look(WaitIdOptions::NOHANG), Ok(Some(_))) {
                self.reap_batch();
                if self.processes().is_ending {
                    // Processes that have just lost their parent are children of the monitor now.
                    kill_children();
                }
            }
        }
        if let Some(exited) = self.processes().first_exit.take() {
            self.report(MonitorEvent::Exited(exited));
        }
    }

    /// Reaps the processes that have exited. Launched processes are known by their pids. The
    /// process group of an orphan is known only from the list of all processes, and only until the
    /// orphan is reaped.
    fn reap_batch(&self) {
        let mut processes = self.processes();
        let launched: Vec<Pid> = processes.launched.values().copied().collect();
        let reaped = launched.into_iter().filter_map(|pid| waitpid(Some(pid), WaitOptions::NOHANG).ok()?);
        let reaped: Vec<(Pid, WaitStatus)> = reaped.collect();
        if !reaped.is_empty() {
            for (pid, status) in reaped {
                self.has_ended(&mut processes, pid, status, None);
            }
            return;
        }
        let mut is_done = false;
        for dead in children().filter(|child| matches!(child.state(), Ok(ProcState::Zombie))) {
            if let Ok(Some((pid, status))) = waitpid(Pid::from_raw(dead.pid), WaitOptions::NOHANG) {
                is_done = true;
                self.has_ended(&mut processes, pid, status, Some(dead));
            }
        }
        // A process that the list does not show is reaped too.
        if !is_done && let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.has_ended(&mut processes, pid, status, None);
        }
    }

    /// Reports the exit of a reaped process. `stat` describes the process if it was found in the
    /// search for orphans. A launched process may exit during this search.
    fn has_ended(&self, processes: &mut ProcessTable, pid: Pid, status: WaitStatus, stat: Option<Stat>) {
        let code = exit_code(status);
        let launched = processes.launched.iter().find(|(_, launched)| **launched == pid);
        let Some(process) = launched.map(|(process, _)| *process) else {
            let is_detached = |stat: &Stat| {
                !Pid::from_raw(stat.pgrp).is_some_and(|group| processes.groups.contains(&group))
            };
            if let Some(stat) = stat.filter(is_detached) {
                self.report(MonitorEvent::Orphan(Orphan { pid: stat.pid, program: stat.comm, code }));
            }
            return;
        };
        processes.launched.remove(&process);
        // A group without members is forgotten, because its number may be reused.
        let leaders: HashSet<Pid> = processes.launched.values().copied().collect();
        processes.groups.retain(|group| leaders.contains(group) || test_kill_process_group(*group).is_ok());
        let exited = Exited { process, code, at: now() };
        if processes.first == Some(process) {
            processes.first_exit = Some(exited);
            processes.is_ending = true;
        } else {
            self.report(MonitorEvent::Exited(exited));
        }
    }

    fn send_refused(&self, process: u64, reason: String) {
        self.report(MonitorEvent::Refused(Refused { process, reason }));
    }

    fn report(&self, event: MonitorEvent) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        // If procrun has exited, the processes are about to be killed anyway.
        let _ = reports.write_all(&framed(&MonitorReply::for_event(event)));
    }

    fn processes(&self) -> MutexGuard<'_, ProcessTable> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the children of this process, zombies included.
fn children() -> impl Iterator<Item = Stat> {
    let our_pid = getpid().as_raw_pid();
    processes::all().filter(move |stat| stat.ppid == our_pid)
}

/// Kills every child. The pid of a child is not reused until the child is reaped, so no other
/// process is hit.
fn kill_children() {
    for pid in children().filter_map(|child| Pid::from_raw(child.pid)) {
        let _ = kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(signal::exit_code)).unwrap_or(255)
}
