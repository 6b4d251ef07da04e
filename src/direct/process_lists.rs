//! The lists of the processes of helpers, by which commands are ended that a helper and its
//! probeshim have left behind, such as after both were killed at once.
//!
//! Each helper has a list of its own, in a directory beside the admin socket. probeshim holds a
//! lock on the list of its helper, so that another probeshim, such as its successor, leaves that
//! alone.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exec_helper::process_list::ListedProcess;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, open, openat, unlinkat};
use rustix::process::{PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};
use tracing::{debug, info, warn};

use crate::hex::random_id;

/// Maximum length of a list that is read, in bytes.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// Time for which the end of a helper is awaited that was killed.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The directory of the lists. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ProcessLists(Arc<Path>);

/// The list of a helper of this probeshim.
#[derive(Debug)]
pub(super) struct OwnList {
    lists: ProcessLists,
    name: String,
    /// The file, with a lock that this process holds.
    file: File,
}

/// Reason for which the directory is not used.
#[derive(Debug, thiserror::Error)]
#[error("{dir} belongs to another user, or others may write to it", dir = .0.display())]
struct ForeignDir(PathBuf);

impl ProcessLists {
    /// Returns the directory beside an admin socket: `SOCKET.execs`.
    pub(super) fn beside(admin_socket: &Path) -> Self {
        let mut dir = admin_socket.as_os_str().to_owned();
        dir.push(".execs");
        Self(PathBuf::from(dir).into())
    }

    /// Creates an empty list for a helper. Returns it, and the file for the helper.
    pub(super) fn create(&self) -> io::Result<(OwnList, File)> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let dir = self.open()?;
        // The kernel has a name for each boot, since pids and times of starts begin again.
        let name = format!("{}.{}.{}", boot_id()?, getpid(), random_id());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(&dir, &name, flags, Mode::from_raw_mode(0o600))?);
        file.try_lock()?;
        // The lock belongs to an open file, and the helper gets another one.
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let for_helper = openat(&dir, &name, flags, Mode::empty())?.into();
        Ok((OwnList { lists: self.clone(), name, file }, for_helper))
    }

    /// Ends the processes in lists whose probeshim has ended, and removes these lists.
    pub(super) fn end_left_behind(&self) {
        let names = match fs::read_dir(&self.0) {
            Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()),
            // No helper has had a list.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return warn!(%error, "the lists of processes of exec helpers cannot be read"),
        };
        for name in names {
            match self.open().and_then(|dir| end_if_left_behind(&dir, &name)) {
                Ok(()) => {}
                Err(error) => warn!(%error, name, "a list of processes of an exec helper cannot be read"),
            }
        }
        self.remove_if_empty();
    }

    /// Opens the directory. Fails if others could write to it.
    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = open(&*self.0, flags, Mode::empty())?;
        let found = File::from(dir.try_clone()?).metadata()?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(io::Error::other(ForeignDir(self.0.to_path_buf())));
        }
        Ok(dir)
    }

    /// Removes the directory if it has no list.
    fn remove_if_empty(&self) {
        let _ = fs::remove_dir(&self.0);
    }
}

impl OwnList {
    /// Ends the processes that a helper has left, which has ended, and removes the list.
    pub(super) fn end(self) {
        let Self { lists, name, file } = self;
        end_processes(&file);
        if let Ok(dir) = lists.open() {
            let _ = unlinkat(&dir, &name, AtFlags::empty());
        }
        lists.remove_if_empty();
    }
}

/// Ends the processes in a list unless its probeshim runs, and removes it.
fn end_if_left_behind(dir: &OwnedFd, name: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        file => File::from(file?),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // The list of a probeshim that has not locked it yet is empty. That probeshim goes without.
    if name.starts_with(&boot_id()?) {
        end_processes(&file);
    }
    Ok(unlinkat(dir, name, AtFlags::empty())?)
}

/// Ends the processes in a list: first the helper, so that it starts no more.
fn end_processes(list: &File) {
    if let Some(helper) = read_list(list).first()
        && let Some(ended) = end_process(helper)
    {
        let limit = Timespec { tv_sec: END_LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit));
    }
    for process in read_list(list).iter().skip(1) {
        if end_process(process).is_some() {
            info!(pid = process.pid.as_raw_nonzero(), "a command was ended that an exec helper had left");
        }
    }
}

fn read_list(mut list: &File) -> Vec<ListedProcess> {
    let mut text = String::new();
    let read = io::Seek::rewind(&mut list).and_then(|()| list.take(MAX_LIST_BYTES).read_to_string(&mut text));
    if let Err(error) = read {
        debug!(%error, "a list of processes of an exec helper cannot be read");
    }
    ListedProcess::read_all(&text).collect()
}

/// Kills a process, unless another one has its pid now. Returns its pidfd.
fn end_process(process: &ListedProcess) -> Option<OwnedFd> {
    let pidfd = pidfd_open(process.pid, PidfdFlags::empty()).ok()?;
    // If the process with the pid is the listed one now, the pidfd refers to it.
    if ListedProcess::running(process.pid).ok()? != *process {
        return None;
    }
    pidfd_send_signal(pidfd.as_fd(), Signal::KILL).ok()?;
    Some(pidfd)
}

fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, ExitStatus, Stdio};

    use rustix::process::Pid;

    use super::*;

    fn lists() -> (tempfile::TempDir, ProcessLists) {
        let dir = tempfile::tempdir().unwrap();
        let lists = ProcessLists::beside(&dir.path().join("admin.sock"));
        (dir, lists)
    }

    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn listed(child: &Child) -> ListedProcess {
        ListedProcess::running(Pid::from_raw(child.id().cast_signed()).unwrap()).unwrap()
    }

    /// Ends a program that reads its input, and returns its status.
    fn end(mut child: Child) -> ExitStatus {
        drop(child.stdin.take());
        child.wait().unwrap()
    }

    fn write(file: &File, processes: &[ListedProcess]) {
        for process in processes {
            writeln!(&mut &*file, "{process}").unwrap();
        }
    }

    fn was_killed(child: Child) -> bool {
        end(child).signal() == Some(Signal::KILL.as_raw())
    }

    #[test]
    fn the_processes_of_a_probeshim_that_has_ended_are_ended() {
        let (_dir, lists) = lists();
        let (helper, command) = (cat(), cat());
        let (own, file) = lists.create().unwrap();
        write(&file, &[listed(&helper), listed(&command)]);
        lists.end_left_behind();
        assert_eq!(fs::read_dir(&*lists.0).unwrap().count(), 1, "the probeshim of the list runs");
        drop(own);
        lists.end_left_behind();
        assert_eq!([helper, command].map(was_killed), [true, true]);
        assert!(!lists.0.exists());
    }

    #[test]
    fn the_processes_that_an_own_helper_has_left_are_ended() {
        let (_dir, lists) = lists();
        let (helper, command) = (cat(), cat());
        let (own, file) = lists.create().unwrap();
        let ended = listed(&helper);
        end(helper);
        write(&file, &[ended, listed(&command)]);
        own.end();
        assert!(was_killed(command));
        assert!(!lists.0.exists());
    }

    #[test]
    fn a_process_with_another_start_is_not_ended() {
        let (_dir, lists) = lists();
        let process = cat();
        let entry = listed(&process);
        let (own, file) = lists.create().unwrap();
        write(&file, &[ListedProcess { start: entry.start + 1, ..entry }; 2]);
        own.end();
        assert!(!was_killed(process));
    }

    #[test]
    fn a_list_of_another_boot_is_removed_and_ends_no_process() {
        let (_dir, lists) = lists();
        let process = cat();
        let (own, file) = lists.create().unwrap();
        write(&file, &[listed(&process); 2]);
        fs::rename(lists.0.join(&own.name), lists.0.join("another-boot.1.0")).unwrap();
        drop(own);
        lists.end_left_behind();
        assert!(!was_killed(process));
        assert!(!lists.0.exists());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        let (_dir, lists) = lists();
        DirBuilder::new().mode(0o700).create(&*lists.0).unwrap();
        rustix::fs::chmod(&*lists.0, Mode::from_raw_mode(0o777)).unwrap();
        let error = lists.create().unwrap_err().to_string();
        assert!(error.ends_with("belongs to another user, or others may write to it"), "{error}");
        fs::write(lists.0.join("list"), "").unwrap();
        lists.end_left_behind();
        assert!(lists.0.join("list").exists());
    }
}
