//! Directories of container logs. They are created and removed without following links, because a
//! pod may have put links there.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::beneath::{Links, open_or_make, trusted};
use super::removal;

/// Creates a directory below `logs`, the directory of all logs.
pub(in crate::kubelet) fn make_log_directory(logs: &Path, path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(logs)?;
    open_or_make(trusted(logs)?, below(logs, path)?, 0o755, Links::Refuse).map(drop)
}

/// Removes a directory in `logs`, the directory of all logs, with its content.
pub(in crate::kubelet) fn remove_log_directory(logs: &Path, path: &Path) -> io::Result<()> {
    removal::remove(trusted(logs)?, OsStr::new(below(logs, path)?))
}

fn below<'a>(logs: &Path, path: &'a Path) -> io::Result<&'a Path> {
    path.strip_prefix(logs).map_err(|_| Errno::INVAL.into())
}
