//! A directory of one process for everything that it leaves nowhere else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::socket::{AddressError, SocketPath};

/// A directory below the one for temporary files, which only this user can access. It is removed
/// with its last clone.
#[derive(Clone, Debug)]
pub struct PrivateDir(Arc<TempDir>);

/// Reason why a private directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateDirError {
    /// No directory could be created in the directory for temporary files.
    #[error("cannot create a private directory in {dir}: {source}; set TMPDIR to another")]
    Create {
        /// The directory for temporary files.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path of the directory for temporary files is too long for a socket.
    #[error("TMPDIR: a socket in {dir} {source}")]
    Address {
        /// The private directory.
        dir: PathBuf,
        /// The error of the socket's path.
        source: AddressError,
    },
}

impl PrivateDir {
    /// Creates a directory with a name that begins with `prefix`.
    pub fn create(prefix: &str) -> Result<Self, PrivateDirError> {
        let parent = std::env::temp_dir();
        // The path has no links, since messages and logs are not read through links.
        let parent = parent.canonicalize().unwrap_or(parent);
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(&parent);
        dir.map(|dir| Self(Arc::new(dir))).map_err(|source| PrivateDirError::Create { dir: parent, source })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a socket in the directory.
    pub fn socket(&self, name: &str) -> Result<SocketPath, PrivateDirError> {
        SocketPath::new(&self.path().join(name))
            .map_err(|source| PrivateDirError::Address { dir: self.path().to_owned(), source })
    }

    /// Removes the directory now, and returns the error if it cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(self.path())
    }
}
