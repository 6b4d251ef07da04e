//! Identity and version of a file, independent of its name.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Device and inode of a file. Two names with the same device and inode are the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the identity of the file with this path. A symbolic link is a file of its own.
    pub(crate) fn from_path(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|file| Self::from_metadata(&file))
    }

    pub(crate) fn from_metadata(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Identity and version of a file: device, inode, size, and time of the last change in seconds and
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    file: FileId,
    size: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file with this path; `None` if it does not exist. Symbolic links
    /// are followed, because Kubernetes replaces mounted certificates by changing a link.
    pub(crate) fn from_path(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        Some(Self { file: FileId::from_metadata(&found), size: found.size(), modified })
    }
}
