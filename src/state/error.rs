//! Errors of the state store.

use std::io;
use std::path::PathBuf;

use crate::lockfile::LockError;

/// Error of the opening of the state store.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has locked the file.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The writer thread cannot be started.
    #[error("cannot start the thread that writes the state: {0}")]
    System(#[source] io::Error),
    /// The file is damaged.
    #[error(
        "the state is damaged ({0}); move the file away to start with an empty state: running pods are then left as they are and reported"
    )]
    Damaged(String),
}

/// Error of a write. The changes are not on disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The database rejected the changes.
    #[error(transparent)]
    Database(#[from] redb::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Another probeshim locked the directory after the file was removed.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The file was replaced.
    #[error("{} has been replaced by another file, which is left unchanged; restart probeshim to use it", .0.display())]
    Replaced(PathBuf),
    /// The database panicked.
    #[error("the database failed: {0}")]
    Panic(String),
}
