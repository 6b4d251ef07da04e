//! The list of the processes of a helper, in a file that outlives the helper and probeshim, so that
//! a later probeshim can end processes which both have left behind.
//!
//! Each entry has the same length: the pid of a process and the time of its start, by which another
//! process with the same pid is distinguished. The first entry is the helper. The entry of a
//! process that has ended is empty, and is used again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::process::{Pid, getpid};

use crate::snapshot::stat_fields;

/// Length of an entry, in bytes: the pid, a space, the time of the start, and a newline.
const ENTRY_BYTES: usize = 32;

/// Number of digits of a pid in an entry.
const PID_DIGITS: usize = 10;

/// Number of digits of the time of a start in an entry.
const START_DIGITS: usize = ENTRY_BYTES - PID_DIGITS - 2;

/// Field of `/proc/PID/stat` with the time of the start, with its number in `proc(5)`.
const START_FIELD: usize = 22;

/// Place of an entry in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryNumber(u64);

/// The list, from the view of the helper.
#[derive(Debug)]
pub(crate) struct ProcessList {
    file: File,
    /// Number of entries.
    length: u64,
    /// Empty entries.
    free: Vec<EntryNumber>,
}

/// A process in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedProcess {
    /// Its pid.
    pub pid: Pid,
    /// Time of its start, in clock ticks since the boot.
    pub start: u64,
}

impl ProcessList {
    /// Creates a list in an empty file, and adds this process.
    pub(crate) fn create(file: File) -> io::Result<Self> {
        let mut list = Self { file, length: 0, free: Vec::new() };
        list.add(getpid())?;
        Ok(list)
    }

    /// Adds a process, which must not have been reaped.
    pub(crate) fn add(&mut self, pid: Pid) -> io::Result<EntryNumber> {
        let process = ListedProcess::running(pid)?;
        let number = self.free.pop().unwrap_or_else(|| {
            self.length += 1;
            EntryNumber(self.length - 1)
        });
        self.write(number, &process.to_string()).inspect_err(|_| self.free.push(number))?;
        Ok(number)
    }

    /// Removes a process that has ended. Its entry stays if that fails: the start distinguishes
    /// other processes with the pid.
    pub(crate) fn remove(&mut self, number: EntryNumber) {
        if self.write(number, "").is_ok() {
            self.free.push(number);
        }
    }

    fn write(&self, number: EntryNumber, text: &str) -> io::Result<()> {
        let entry = format!("{text:<width$}\n", width = ENTRY_BYTES - 1);
        self.file.write_all_at(entry.as_bytes(), number.0 * ENTRY_BYTES as u64)
    }
}

impl ListedProcess {
    /// Returns the process that has this pid now.
    pub fn running(pid: Pid) -> io::Result<Self> {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
        // The name of the program has any bytes.
        let stat = String::from_utf8_lossy(&stat);
        let ticks = stat_fields(&stat).nth(START_FIELD - 3).and_then(|ticks| ticks.parse().ok());
        Ok(Self { pid, start: ticks.ok_or(io::ErrorKind::InvalidData)? })
    }

    /// Returns the processes in the text of a list. What is no entry is ignored.
    pub fn read_all(text: &str) -> impl Iterator<Item = Self> {
        text.lines().filter_map(|entry| {
            let (pid, start) = entry.trim().split_once(' ')?;
            let pid = Pid::from_raw(pid.parse().ok().filter(|pid| *pid > 1)?)?;
            Some(Self { pid, start: start.trim().parse().ok()? })
        })
    }
}

impl std::fmt::Display for ListedProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<PID_DIGITS$} {:<START_DIGITS$}", self.pid.as_raw_nonzero(), self.start)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn pid(child: &Child) -> Pid {
        Pid::from_raw(child.id().cast_signed()).unwrap()
    }

    #[test]
    fn a_list_has_the_helper_and_the_running_processes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let listed = || -> Vec<Pid> {
            let text = fs::read_to_string(file.path()).unwrap();
            assert_eq!(text.len() % ENTRY_BYTES, 0, "{text:?}");
            ListedProcess::read_all(&text).map(|process| process.pid).collect()
        };
        let mut list = ProcessList::create(file.reopen().unwrap()).unwrap();
        let mut children = [(); 3].map(|()| cat());
        let pids = children.each_ref().map(pid);
        let [first, second] = [list.add(pids[0]).unwrap(), list.add(pids[1]).unwrap()];
        assert_eq!(listed(), [getpid(), pids[0], pids[1]]);
        list.remove(first);
        assert_eq!(listed(), [getpid(), pids[1]]);
        list.add(pids[2]).unwrap();
        list.remove(second);
        assert_eq!(listed(), [getpid(), pids[2]], "an empty entry is used again");
        assert_eq!(fs::metadata(file.path()).unwrap().len(), 3 * ENTRY_BYTES as u64);
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert!(list.add(pids[0]).is_err(), "the process has ended");
    }

    #[test]
    fn a_damaged_list_has_only_the_entries_that_can_be_read() {
        let text = "17         4711\n\n0 1\n1 1\n-1 5\nx y\n18 \n99999999999 1\n19 12";
        let found: Vec<(i32, u64)> =
            ListedProcess::read_all(text).map(|it| (it.pid.as_raw_nonzero().get(), it.start)).collect();
        assert_eq!(found, [(17, 4711), (19, 12)]);
    }
}
