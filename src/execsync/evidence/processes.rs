//! Processes of a container: command lines, and processes that an exec left.

use std::collections::HashSet;

use procfs::process::Process as Proc;

/// Maximum size of a command line that is compared with commands, in bytes.
const MAX_COMPARED_BYTES: usize = 64 << 10;

/// Maximum number of processes in a result, arguments of a process, and characters of an argument.
const MAX_PROCESSES: usize = 32;
const MAX_ARGS: usize = 32;
const MAX_CMDLINE_BYTES: usize = 256;

/// Last argument in the command of a zombie, which has no command line, as `ps` marks it.
pub(in crate::execsync) const DEFUNCT: &str = "<defunct>";

/// A process in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The pid on the host.
    pub pid: u32,
    /// The id of the session, which is the pid of the process that an exec started.
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
/// Only processes are returned whose cgroup names the container: if probeshim is in another PID
/// namespace than the runtime, the pid belongs to another process. `redact` limits command lines to
/// their programs.
#[must_use]
pub fn session_processes(container: &str, session: u32, redact: bool) -> Vec<ProcessInfo> {
    let is_inside = |process: &Proc| {
        let groups = process.cgroups().ok();
        groups.is_some_and(|groups| groups.into_iter().any(|group| group.pathname.contains(container)))
    };
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let pids = processes.filter(|process| {
        let stat = process.stat().ok();
        stat.is_some_and(|stat| u32::try_from(stat.session) == Ok(session)) && is_inside(process)
    });
    let pids: Vec<i32> = pids.map(|process| process.pid).collect();
    let mut processes = in_sessions(&pids, &HashSet::from([session]));
    if redact {
        for process in &mut processes {
            keep_program(&mut process.command);
        }
    }
    processes
}

/// Cuts the command line of a process to its program.
pub(in crate::execsync) fn keep_program(command: &mut Vec<String>) {
    command.truncate(1);
    // Some programs write more than their name into the first argument.
    if let Some(program) = command.first_mut() {
        program.truncate(program.find(char::is_whitespace).unwrap_or(program.len()));
    }
}

/// Returns the processes among `pids` that belong to one of these sessions and have not ended. The
/// OCI runtimes start each exec in a session of its own, and the processes that it starts stay in
/// the session, unless they call `setsid`.
pub(super) fn in_sessions(pids: &[i32], sessions: &HashSet<u32>) -> Vec<ProcessInfo> {
    let look = |pid: &i32| {
        let process = Proc::new(*pid).ok()?;
        let stat = process.stat().ok()?;
        let session = u32::try_from(stat.session).ok().filter(|session| sessions.contains(session))?;
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

/// Returns the zombies among the children of `parents` that belong to one of these sessions. A
/// zombie is in no list of a cgroup's processes. An orphan is a child of the first process of its
/// container.
pub(super) fn zombies_in_sessions(parents: &[i32], sessions: &HashSet<u32>) -> Vec<ProcessInfo> {
    let children = |pid: &i32| {
        let children = Proc::new(*pid).ok()?.task_main_thread().ok()?.children();
        children.ok()
    };
    let look = |pid: u32| {
        let stat = Proc::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
        let session = u32::try_from(stat.session).ok().filter(|session| sessions.contains(session))?;
        let command = vec![stat.comm, DEFUNCT.to_owned()];
        (stat.state == 'Z').then_some(ProcessInfo { pid, session, command })
    };
    parents.iter().filter_map(children).flatten().filter_map(look).take(MAX_PROCESSES).collect()
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
    #[test]
    fn a_zombie_of_a_session_is_found_below_its_parent() {
        let script = "setsid true & echo $!; exec sleep 1000";
        let mut parent = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let session: u32 = line.trim().parse().unwrap();
        let is_zombie = || {
            let stat = Proc::new(session.cast_signed()).unwrap().stat().unwrap();
            stat.state == 'Z' && stat.session == session.cast_signed()
        };
        while !is_zombie() {
            std::thread::yield_now();
        }
        let (parents, sessions) = ([parent.id().cast_signed()], HashSet::from([session]));
        let found = zombies_in_sessions(&parents, &sessions);
        let running = in_sessions(&[session.cast_signed()], &sessions);
        let others = zombies_in_sessions(&parents, &HashSet::new());
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert_eq!(found.iter().map(|it| it.pid).collect::<Vec<_>>(), [session]);
        assert_eq!(found[0].command, ["true", DEFUNCT]);
        assert!(running.is_empty() && others.is_empty());
    }
}
