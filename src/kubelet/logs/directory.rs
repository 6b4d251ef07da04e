//! Files of one container's log. Symbolic links are never followed, because a container may have
//! the directory mounted.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::policy::{COMPRESSED, RotationPlan, TEMPORARY};
use crate::kubelet::pod_dir::without_links;

/// The directory of a log, and the name of the log in it.
#[derive(Debug)]
pub(super) struct LogDirectory {
    directory: OwnedFd,
    name: String,
}

impl LogDirectory {
    /// Opens the directory of the log at `path`, which must be absolute and free of symbolic links.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let name = path.file_name().and_then(OsStr::to_str).ok_or(io::ErrorKind::InvalidFilename)?;
        let parent = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
        let directory = without_links(parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self { directory, name: name.to_owned() })
    }

    /// Returns the size of the log in bytes. Fails if the log is not a regular file.
    pub(super) fn size(&self) -> io::Result<u64> {
        let stat = statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Removes and compresses earlier rotated logs to make room for one more, so that at most
    /// `max_files` files exist after the rotation.
    pub(super) fn make_room(&self, max_files: usize) -> io::Result<()> {
        let plan = RotationPlan::new(self.files(&format!("{}.", self.name))?, max_files);
        for name in &plan.remove {
            self.remove(name)?;
        }
        plan.compress.iter().try_for_each(|name| self.compress(name))
    }

    /// Renames the log by adding a suffix. Fails if a rotated log has this name, compressed or not,
    /// which happens if the clock was set back.
    pub(super) fn set_aside(&self, suffix: &str) -> io::Result<()> {
        let rotated = format!("{}.{suffix}", self.name);
        self.check_free(&format!("{rotated}{COMPRESSED}"))?;
        self.rename(&self.name, &rotated)
    }

    /// Renames the log back. Fails if the runtime has created a new log: both files may have lines
    /// that the other does not have.
    pub(super) fn restore(&self, suffix: &str) -> io::Result<()> {
        self.rename(&format!("{}.{suffix}", self.name), &self.name)
    }

    /// Removes the log and all rotated ones.
    pub(super) fn remove_all(&self) -> io::Result<()> {
        self.files(&self.name)?.iter().try_for_each(|name| self.remove(name))
    }

    /// Returns the names of the regular files that begin with `prefix`.
    fn files(&self, prefix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().ok().filter(|name| name.starts_with(prefix)) else {
                continue;
            };
            let stat = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            if stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file()) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Renames a file unless the new name exists. The runtime may create the log at any time.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = &self.directory;
        match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
            // The filesystem or the kernel cannot check and rename in one step.
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.check_free(to)?;
                Ok(renameat(directory, from, directory, to)?)
            }
            renamed => Ok(renamed?),
        }
    }

    fn check_free(&self, name: &str) -> io::Result<()> {
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(()),
        }
    }

    /// Replaces a rotated log by its compressed form, which gets its final name when it is
    /// complete.
    fn compress(&self, name: &str) -> io::Result<()> {
        let mut log = self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
        let temporary = format!("{name}{TEMPORARY}");
        // A symbolic link of this name is removed too, and never written through.
        self.remove(&temporary)?;
        let mode = Mode::from_raw_mode(log.metadata()?.permissions().mode() & 0o777);
        let file = self.open_file(&temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)?;
        let mut encoder = GzEncoder::new(file, Compression::default());
        let compressed = io::copy(&mut log, &mut encoder).and_then(|_| encoder.finish()).and_then(|_| {
            Ok(renameat(&self.directory, &temporary, &self.directory, format!("{name}{COMPRESSED}"))?)
        });
        if compressed.is_err() {
            // If this fails, the next rotation removes the file.
            let _ = self.remove(&temporary);
        }
        compressed.and_then(|()| self.remove(name))
    }

    fn open_file(&self, name: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
        let file = openat(&self.directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)?;
        Ok(File::from(file))
    }
}
