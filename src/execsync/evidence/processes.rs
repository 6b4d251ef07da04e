//! Processes of a container: command lines, and processes that an exec left.

use std::collections::HashSet;

use procfs::process::Process as Proc;

/// Maximum size of a command line that is compared with commands, in bytes.
const MAX_COMPARED_BYTES: usize = 64 << 10;

/// Maximum number of processes in a result, arguments of a process, and characters of an argument.
const MAX_PROCESSES: usize = 32;
const MAX_ARGS: usize = 32;
const MAX_CMDLINE_BYTES: usize = 256;

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
/// namespace than the runtime, the pid belongs to another process.
#[must_use]
pub fn session_processes(container: &str, session: u32) -> Vec<ProcessInfo> {
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
    in_sessions(&pids, &HashSet::from([session]))
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
