//! Processes of a container: their words, and what a command left behind.

use std::collections::HashSet;

use procfs::process::Process as Proc;

/// Maximum size of an argument list that is compared with commands, in bytes.
const MAX_COMPARED_BYTES: usize = 64 << 10;

/// Processes that are told of at once, and words and bytes of each.
const MAX_PROCESSES: usize = 32;
const MAX_ARGS: usize = 32;
const MAX_CMDLINE_BYTES: usize = 256;

/// A process in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// As it is numbered on the host.
    pub pid: u32,
    /// The first process of its session: what an exec started, for all that this left.
    pub session: u32,
    /// Its words.
    pub command: Vec<String>,
}

/// The words of a process; `None` where it is gone, or has none any more.
pub(super) fn read_cmdline(pid: u32) -> Option<Vec<String>> {
    let args = Proc::new(i32::try_from(pid).ok()?).ok()?.cmdline().ok()?;
    let length: usize = args.iter().map(String::len).sum();
    (!args.is_empty() && length <= MAX_COMPARED_BYTES).then_some(args)
}

/// Those of some processes that belong to one of these sessions and have not ended. The OCI runtimes give each command that they execute a
/// session of its own, and what the command starts stays in it, unless it takes care not to.
pub(super) fn in_sessions(pids: &[i32], sessions: &HashSet<u32>) -> Vec<ProcessInfo> {
    let look = |pid: &i32| {
        let process = Proc::new(*pid).ok()?;
        let stat = process.stat().ok()?;
        let session = u32::try_from(stat.session).ok().filter(|session| sessions.contains(session))?;
        let is_zombie = stat.state == 'Z';
        let command = process.cmdline().ok().filter(|args| !args.is_empty());
        // What has no words, as a process that is ending, has a name.
        let command = command.unwrap_or_else(|| vec![stat.comm]);
        let short = |word: String| word.chars().take(MAX_CMDLINE_BYTES).collect();
        let command = command.into_iter().take(MAX_ARGS).map(short).collect();
        (!is_zombie).then_some(ProcessInfo { pid: pid.unsigned_abs(), session, command })
    };
    pids.iter().filter_map(look).take(MAX_PROCESSES).collect()
}
