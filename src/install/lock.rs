//! Excludes a second process that changes the installation.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;

use super::InstallError;
use super::paths::Paths;

/// The right to change the installation, until it is dropped or its process ends. The file stays:
/// a process that waits for the lock has it open.
#[derive(Debug)]
pub(super) struct InstallLock {
    _file: File,
}

impl InstallLock {
    /// Waits until no other process changes the installation.
    pub(super) fn acquire(paths: &Paths) -> Result<Self, InstallError> {
        let path = Paths::lock();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        // Opening a FIFO would block.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = options.open(paths.at(path)).map_err(InstallError::file("open", path))?;
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            let reason = io::Error::other("it is not a regular file; remove it");
            return Err(InstallError::file("lock", path)(reason));
        }
        file.lock().map_err(InstallError::file("lock", path))?;
        Ok(Self { _file: file })
    }
}
