//! Identity of a file, independent of its name.

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
