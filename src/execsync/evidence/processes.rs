//! Processes of a container: command lines, and processes that an exec left.

use std::collections::HashSet;

use procfs::process::{Process as Proc, Stat};

use crate::processes;

/// Maximum size of a command line that is compared with commands, in bytes.
const MAX_COMPARED_BYTES: usize = 64 << 10;

/// Maximum number of processes in a result, arguments of a process, and characters of an argument.
const MAX_PROCESSES: usize = 32;
const MAX_ARGS: usize = 32;
const MAX_CMDLINE_BYTES: usize = 256;

/// Subcommand of procrun's monitors.
const MONITOR: &str = "monitor";

/// A process in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The pid on the host.
    pub pid: u32,
    /// The pid of the process that an exec started, which leads the session or the process group.
    pub session: u32,
    /// The command line.
    pub command: Vec<String>,
}

/// Returns the command line of a process; `None` if the process is gone, or if its command line is
/// empty or too large.
pub(super) fn read_cmdline(pid: u32) -> Option<Vec<String>> {
    let args = Proc::new(i32::try_from(pid).ok()?).ok()?.cmdline().ok()?;
    let length: usize = args.iter().map(String::len).sum();
    (!args.is_empty() && length <= MAX_COMPARED_BYTES).then_some(args)
}

/// Returns the processes of a container that belong to the session of an exec, and have not ended.
/// Only processes are returned whose cgroup or monitor is that of the container: if probeshim is in
/// another PID namespace than the runtime, the pid is that of another process. `redact` limits
/// command lines to their programs.
#[must_use]
pub fn session_processes(container: &str, session: u32, redact: bool) -> Vec<ProcessInfo> {
    let sessions = HashSet::from([session]);
    let is_left = |stat: &Stat| exec_of(stat, &sessions).is_some() && is_inside(stat, container);
    let pids: Vec<i32> = processes::all().filter(is_left).map(|stat| stat.pid).collect();
    let mut processes = in_sessions(&pids, &sessions);
    if redact {
        for process in &mut processes {
            keep_program(&mut process.command);
        }
    }
    processes
}

/// Returns whether a process belongs to a container: its cgroup names the container, or its session
/// is that of procrun's monitor of the container.
fn is_inside(stat: &Stat, container: &str) -> bool {
    let groups = Proc::new(stat.pid).and_then(|process| process.cgroups()).ok();
    groups.is_some_and(|groups| groups.into_iter().any(|group| group.pathname.contains(container)))
        || is_monitor(stat.session, container)
}

/// Returns whether a process is procrun's monitor of a container, which has the directory of the
/// container in its command line.
fn is_monitor(pid: i32, container: &str) -> bool {
    let args = Proc::new(pid).and_then(|process| process.cmdline()).unwrap_or_default();
    args.get(1).is_some_and(|subcommand| subcommand == MONITOR)
        && args.last().is_some_and(|directory| directory.rsplit('/').any(|part| part == container))
}

/// Returns the pid of procrun's monitor of a container, by the first process of the container.
/// `None` if the container is of another runtime.
pub(super) fn monitor_of(init_pid: i32, container: &str) -> Option<i32> {
    let session = Proc::new(init_pid).ok()?.stat().ok()?.session;
    is_monitor(session, container).then_some(session)
}

/// Returns the pids of all processes of a session.
pub(super) fn session_members(session: i32) -> Vec<i32> {
    processes::all().filter(|stat| stat.session == session).map(|stat| stat.pid).collect()
}

/// Returns which of these execs started a process: the one that has the pid of its session, or of
/// its process group. The OCI runtimes start each exec in a session of its own, and procrun in a
/// process group of its own. The processes that it starts stay there, unless they call `setsid`.
pub(super) fn exec_of(stat: &Stat, execs: &HashSet<u32>) -> Option<u32> {
    [stat.session, stat.pgrp].into_iter().map(i32::unsigned_abs).find(|exec| execs.contains(exec))
}

/// Cuts the command line of a process to its program.
pub(in crate::execsync) fn keep_program(command: &mut Vec<String>) {
    command.truncate(1);
    // Some programs write more than their name into the first argument.
    if let Some(program) = command.first_mut() {
        program.truncate(program.find(char::is_whitespace).unwrap_or(program.len()));
    }
}

/// Returns the processes among `pids` that belong to one of these sessions and have not ended.
pub(super) fn in_sessions(pids: &[i32], sessions: &HashSet<u32>) -> Vec<ProcessInfo> {
    let look = |pid: &i32| {
        let process = Proc::new(*pid).ok()?;
        let stat = process.stat().ok()?;
        let session = exec_of(&stat, sessions)?;
        let is_zombie = stat.state == 'Z';
        let command = process.cmdline().ok().filter(|args| !args.is_empty());
        // A process without a command line, such as one that is ending, is listed by its name.
        let command = command.unwrap_or_else(|| vec![stat.comm]);
        let short = |word: String| word.chars().take(MAX_CMDLINE_BYTES).collect();
        let command = command.into_iter().take(MAX_ARGS).map(short).collect();
        (!is_zombie).then_some(ProcessInfo { pid: pid.unsigned_abs(), session, command })
    };
    pids.iter().filter_map(look).take(MAX_PROCESSES).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_redacted_process_of_a_session_is_shown_without_arguments() {
        let mut started = Command::new("setsid")
            .args(["sh", "-c", "echo; read line", "s3cret"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The shell runs, and has the arguments.
        BufReader::new(started.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let commands = [false, true].map(|redact| {
            let found = session_processes("", started.id(), redact).into_iter();
            found.map(|process| process.command.join(" ")).collect::<Vec<_>>()
        });
        drop(started.stdin.take());
        started.wait().unwrap();
        assert_eq!(commands, [["sh -c echo; read line s3cret"], ["sh"]]);
        let mut title = vec!["worker: s3cret".to_owned()];
        keep_program(&mut title);
        assert_eq!(title, ["worker:"]);
    }
}
