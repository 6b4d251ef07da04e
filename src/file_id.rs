//! What makes a file this file, whatever its name.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A file's place on its device. Two names with the same one are one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that has this name; a link is a file of its own.
    pub(crate) fn from_path(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|file| Self::from_metadata(&file))
    }

    pub(crate) fn from_metadata(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}
