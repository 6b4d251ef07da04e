//! The first free id of a call, which a probeshim leaves for its successor.
//!
//! Two instances overlap while the first finishes its calls in flight. It unlocks the directory for
//! its successor, and appends its records after the successor has read the journal. Their ids are
//! lower than those of the successor, unless clients start more than [`RESERVED_IDS`] calls during
//! the drain.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::read_last;
use crate::lockfile::{LockError, LockFile};
use crate::regular_file;

/// Number of ids that are reserved for calls that clients start during a drain.
const RESERVED_IDS: u64 = 100;

/// Gap before the ids of a probeshim that shares the directory with one that does not drain.
const SHARED_GAP: u64 = 1000;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 64;

/// Writes the next id of this process, with its pid. A reader finds the whole number or none. An
/// error names the file.
pub(super) fn write(dir: &Path, next_id: u64) -> io::Result<()> {
    let (path, new) = (path_of(dir), dir.join("next-id.new"));
    // An earlier process may have left an incomplete file.
    let _ = fs::remove_file(&new);
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    created
        .and_then(|mut file| writeln!(file, "{} {next_id}", std::process::id()))
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Removes the id that an earlier process left. The pid of that process may be used again, and is
/// the same for each probeshim that is the first process of a container. The caller holds the lock
/// of the directory.
pub(super) fn remove(dir: &Path) {
    // Nothing can be recorded either in a directory from which a file cannot be removed.
    let _ = fs::remove_file(path_of(dir));
}

/// Returns the id of the first new call, after the ids in the journal, of which `last` is the
/// highest. An earlier probeshim that has ended records no more calls, so ids continue without a
/// gap.
pub(in crate::history) fn first_id(dir: &Path, last: Option<u64>) -> u64 {
    let next = last.map_or(1, |last| last.saturating_add(1));
    let left = read(dir);
    let after = |left: u64| next.max(left.saturating_add(RESERVED_IDS));
    match (holder(dir), left) {
        // The other probeshim is about to unlock the directory.
        (Some(holder), Some((pid, left))) if pid == holder => after(left),
        (Some(_), _) => next.saturating_add(SHARED_GAP).next_multiple_of(SHARED_GAP),
        (None, Some((pid, left))) if is_other_process(&pid) => after(left),
        (None, _) => next,
    }
}

/// Returns the ids in the journal from `first` on. Another process that held the lock of the
/// directory has recorded them.
pub(super) fn ids_from(dir: &Path, first: u64) -> HashSet<u64> {
    let mut ids = HashSet::new();
    read_last(dir, |record| {
        if record.call.id >= first {
            ids.insert(record.call.id);
        }
    });
    ids
}

/// Returns the pid of the process that holds the lock of a directory, or an empty text if the pid
/// is unknown; `None` if no process holds the lock.
fn holder(dir: &Path) -> Option<String> {
    match LockFile::acquire(&dir.join("calls")) {
        Err(LockError::Held { pid, .. }) => Some(pid.unwrap_or_default()),
        Ok(_) | Err(_) => None,
    }
}

/// Returns the pid and the next id of the process that left them.
fn read(dir: &Path) -> Option<(String, u64)> {
    let text = regular_file::read_to_string(&path_of(dir), MAX_BYTES).ok()?;
    let (pid, next_id) = text.trim_end().split_once(' ')?;
    Some((pid.to_owned(), next_id.parse().ok()?))
}

/// Returns whether a process with this pid runs, other than this process.
fn is_other_process(pid: &str) -> bool {
    let is_other = pid.parse::<u32>().is_ok_and(|pid| pid != std::process::id());
    is_other && Path::new("/proc").join(pid).exists()
}

fn path_of(dir: &Path) -> PathBuf {
    dir.join("next-id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_ids_continue_without_a_gap_unless_another_probeshim_still_records() {
        let dir_guard = tempfile::tempdir().unwrap();
        let dir = dir_guard.path();
        assert_eq!(first_id(dir, None), 1);
        assert_eq!(first_id(dir, Some(56)), 57);
        let lock = LockFile::acquire(&dir.join("calls")).unwrap();
        assert_eq!(first_id(dir, Some(56)), 2000, "the other probeshim does not drain");
        write(dir, 60).unwrap();
        assert_eq!(first_id(dir, Some(56)), 160, "ids 57 to 59 are in flight");
        remove(dir);
        assert_eq!(first_id(dir, Some(56)), 2000, "an earlier process with the same pid left the id");
        fs::write(path_of(dir), "1 60\n").unwrap();
        assert_eq!(first_id(dir, Some(56)), 2000, "a third probeshim wrote the file");
        drop(lock);
        assert_eq!(first_id(dir, Some(56)), 160, "the process with pid 1 has unlocked the directory");
        fs::write(path_of(dir), "999999999 60\n").unwrap();
        assert_eq!(first_id(dir, Some(56)), 57, "the process that left the id has ended");
        write(dir, 60).unwrap();
        assert_eq!(first_id(dir, Some(56)), 57, "a process before this one had its pid");
    }

    #[test]
    fn an_id_that_cannot_be_left_is_an_error_with_the_path() {
        let dir_guard = tempfile::tempdir().unwrap();
        let dir = dir_guard.path();
        fs::write(dir.join("next-id.new"), "incomplete").unwrap();
        write(dir, 7).unwrap();
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1, "the file has its final name");
        remove(dir);
        fs::create_dir(path_of(dir)).unwrap();
        let error = write(dir, 7).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", path_of(dir).display())), "{error}");
    }
}
