//! Lock files: only one process at a time holds a socket, a state directory or a record directory.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::file_id::FileId;

/// Number of bytes of a lock file that are read for the pid of its holder.
const MAX_PID_BYTES: u64 = 32;

/// A lock that is held until it is dropped. Its file is then removed.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    path: PathBuf,
}

/// Reason for which a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("another probeshim{} holds {path}", pid.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Held {
        /// Path of the lock file.
        path: PathBuf,
        /// Pid of the holder, if the file contains it.
        pid: Option<String>,
    },
    /// The lock file is not a regular file or has a second name. The file is not changed.
    #[error(
        "{path} is not a lock file: it is not a regular file, or it has a second name; remove it or use another path"
    )]
    NotALock {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file could not be created or locked.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// Path of the lock file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl LockFile {
    /// Acquires the lock for a socket, or for another object with the path `socket`. The lock is
    /// the file `<socket>.lock` with mode 0600.
    pub(crate) fn acquire(socket: &Path) -> Result<Self, LockError> {
        let path = with_suffix(socket, ".lock");
        let failed = |source| LockError::Io { path: path.clone(), source };
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                // A link could be locked under one name and checked under another, and opening a
                // FIFO would block.
                .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
                .open(&path)
                .map_err(failed)?;
            // The pid replaces the content of the file, so the file must not have another name.
            let found = file.metadata().map_err(failed)?;
            if !found.is_file() || found.nlink() > 1 {
                return Err(LockError::NotALock { path });
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut pid = String::new();
                    let pid =
                        file.take(MAX_PID_BYTES).read_to_string(&mut pid).ok().map(|_| pid.trim().to_owned());
                    return Err(LockError::Held { path, pid: pid.filter(|pid| !pid.is_empty()) });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // The last holder may have removed the file between the open and the lock. The lock is
            // then on a file without a name.
            if !is_file_at(&file, &path) {
                continue;
            }
            // A process that can read the file can hold its lock. An existing file may have another
            // mode.
            let _ = file.set_permissions(Permissions::from_mode(0o600));
            file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
            return Ok(Self { file, path });
        }
    }
}

impl LockFile {
    /// Returns whether the file still has its name. Otherwise another process can acquire a lock of
    /// that name.
    pub(crate) fn is_in_place(&self) -> bool {
        is_file_at(&self.file, &self.path)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // No other process can hold the lock now, so a file that still has the name can be removed.
        if is_file_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_file_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), FileId::from_path(path)) {
        (Ok(held), Ok(named)) => FileId::from_metadata(&held) == named,
        _ => false,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_has_one_owner_and_is_removed_on_release() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("a.sock");
        let held = LockFile::acquire(&socket).unwrap();
        let refused = LockFile::acquire(&socket).unwrap_err().to_string();
        assert!(refused.contains(&format!("(pid {})", std::process::id())), "{refused}");
        drop(held);
        assert!(!dir.path().join("a.sock.lock").exists());
        LockFile::acquire(&socket).unwrap();
    }

    #[test]
    fn a_lock_file_is_not_opened_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&target, dir.path().join("a.sock.lock")).unwrap();
        assert!(matches!(LockFile::acquire(&dir.path().join("a.sock")), Err(LockError::Io { .. })));
        assert!(!target.exists());
    }
}
