//! The processes below a guardian: launched, struck, reaped, and ended together.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use procfs::process::{ProcState, Stat, all_processes};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    waitid, waitpid,
};

use super::super::clock::now;
use super::protocol::{Exited, Launch, Launched, News, Refused, Report, Stray, Strike, Target, framed};

/// All processes below this one.
#[derive(Debug)]
pub(super) struct Household {
    members: Mutex<Members>,
    /// Told when there is something to reap for the first time, or never will be.
    begun: Condvar,
    reports: Mutex<UnixStream>,
}

#[derive(Debug, Default)]
struct Members {
    /// Those that were launched and have not been reaped: their pids are theirs for as long as they are in here.
    launched: HashMap<u64, Pid>,
    /// The groups of all that ever were launched.
    groups: HashSet<i32>,
    /// The number of the first, which is the container itself.
    first: Option<u64>,
    /// How the first has ended.
    last_word: Option<Exited>,
    /// Set when all must go.
    is_ending: bool,
}

impl Household {
    pub(super) fn new(reports: UnixStream) -> Self {
        Self { members: Mutex::default(), begun: Condvar::new(), reports: Mutex::new(reports) }
    }

    /// Launches a process in a process group of its own.
    pub(super) fn launch(&self, launch: Launch, [stdout, stderr]: [OwnedFd; 2]) {
        let wanted = launch.command.unwrap_or_default();
        let mut command = Command::new(&wanted.program);
        if let Some((name, words)) = wanted.words.split_first() {
            command.arg0(name).args(words);
        }
        command.env_clear().current_dir(&wanted.folder).process_group(0);
        command.envs(wanted.envs.iter().map(|env| (&env.key, OsStr::from_bytes(&env.value))));
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        // Held while it is launched: the reaper takes nobody that is not in the list yet.
        let mut members = self.members();
        if members.is_ending {
            return self.refuse(launch.process, "the container has ended".to_owned());
        }
        let at = now();
        match command.spawn() {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                members.launched.insert(launch.process, pid);
                members.groups.insert(pid.as_raw_pid());
                members.first.get_or_insert(launch.process);
                let pid = pid.as_raw_pid();
                self.report(News::Launched(Launched { process: launch.process, pid, at }));
                self.begun.notify_all();
            }
            Err(error) => self.refuse(launch.process, error.to_string()),
        }
    }

    /// Sends a signal. Who has ended already gets none.
    pub(super) fn strike(&self, strike: Strike) {
        if strike.target() == Target::Everything {
            return self.end();
        }
        let members = self.members();
        let Some(signal) = Signal::from_named_raw(strike.signal) else { return };
        let Some(pid) = members.launched.get(&strike.process) else { return };
        let _ = match strike.target() {
            Target::Group => kill_process_group(*pid, signal),
            _ => kill_process(*pid, signal),
        };
    }

    /// Ends everyone, and lets nobody new in.
    pub(super) fn end(&self) {
        let mut members = self.members();
        members.is_ending = true;
        kill_children();
        self.begun.notify_all();
    }

    /// Reaps until the container has ended and nobody is left.
    pub(super) fn reap(&self) {
        let mut members = self.members();
        while members.first.is_none() && !members.is_ending {
            members = self.begun.wait(members).unwrap_or_else(PoisonError::into_inner);
        }
        drop(members);
        // Looks without reaping: who it is and what became of it is found under the lock.
        let look = |options| waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | options);
        loop {
            match look(WaitIdOptions::empty()) {
                Err(Errno::INTR) => continue,
                // Nobody is left.
                Err(_) => break,
                Ok(_) => {}
            }
            while matches!(look(WaitIdOptions::NOHANG), Ok(Some(_))) {
                self.bury();
            }
            if self.members().is_ending {
                // Those who lost their parent just now have become our children.
                kill_children();
            }
        }
        if let Some(last_word) = self.members().last_word.take() {
            self.report(News::Exited(last_word));
        }
    }

    /// Reaps those who were launched and have ended, or else those who were not.
    fn bury(&self) {
        let mut members = self.members();
        let known: Vec<(u64, Pid)> = members.launched.iter().map(|(process, pid)| (*process, *pid)).collect();
        let mut is_done = false;
        for (process, pid) in known {
            let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) else { continue };
            is_done = true;
            members.launched.remove(&process);
            let exited = Exited { process, code: exit_code(status), at: now() };
            if members.first == Some(process) {
                members.last_word = Some(exited);
                members.is_ending = true;
            } else {
                self.report(News::Exited(exited));
            }
        }
        if is_done {
            return;
        }
        // Somebody who lost its parent; only the list of all processes tells who.
        for dead in children().filter(|child| matches!(child.state(), Ok(ProcState::Zombie))) {
            let pid = Pid::from_raw(dead.pid);
            if pid.is_none() || members.launched.values().any(|launched| Some(*launched) == pid) {
                continue;
            }
            let Ok(Some((_, status))) = waitpid(pid, WaitOptions::NOHANG) else { continue };
            if !members.groups.contains(&dead.pgrp) {
                let (pid, program) = (dead.pid, dead.comm);
                self.report(News::Stray(Stray { pid, program, code: exit_code(status) }));
            }
        }
    }

    fn refuse(&self, process: u64, reason: String) {
        self.report(News::Refused(Refused { process, reason }));
    }

    fn report(&self, news: News) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        // Where procrun has gone, everything is about to end anyway.
        let _ = reports.write_all(&framed(&Report::of(news)));
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The processes whose parent this one is, the dead included.
fn children() -> impl Iterator<Item = Stat> {
    let own = getpid().as_raw_pid();
    let all = all_processes().into_iter().flatten();
    all.filter_map(|process| process.ok()?.stat().ok()).filter(move |stat| stat.ppid == own)
}

/// Kills every child. A child's pid stays its own until it is reaped, so nobody else is hit.
fn kill_children() {
    for pid in children().filter_map(|child| Pid::from_raw(child.pid)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// As a shell and the CRI give it: 128 and the signal where one ended the process.
fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(255)
}
