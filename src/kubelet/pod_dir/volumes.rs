//! Directories of volumes, hostPath volumes, and the ownership of files by the pod's group.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Gid, Mode, OFlags, fchmod, fchown, fstat, openat};
use rustix::io::Errno;

use super::beneath::{Links, make, open, trusted};
use super::error::{VolumeError, with_path};
use crate::manifest::pod::{FilesKind, HostPathKind};

/// Mode bits that a directory of the group gets: the group may use it, and new files inherit the
/// group.
pub(super) const GROUP_DIRECTORY_MODE: u32 = 0o2070;

/// Returns the kubelet's name of the directory of a kind of volumes.
pub(super) fn dir(kind: FilesKind) -> &'static str {
    match kind {
        FilesKind::ConfigMap => "kubernetes.io~configmap",
        FilesKind::Secret => "kubernetes.io~secret",
        FilesKind::DownwardApi => "kubernetes.io~downward-api",
        FilesKind::Projected => "kubernetes.io~projected",
    }
}

/// Checks the type of the file at a hostPath. Creates a missing file or directory if the type
/// allows it (kubelet: `pkg/volume/hostpath`: `checkType`).
pub(super) fn host_path(path: &Path, kind: HostPathKind) -> Result<(), VolumeError> {
    match kind {
        HostPathKind::DirectoryOrCreate if !path.exists() => {
            return host_directory(path).map_err(with_path(path));
        }
        HostPathKind::FileOrCreate if !path.exists() => {
            // `O_EXCL` does not follow a dangling link.
            let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
            return file.map(drop).map_err(with_path(path));
        }
        _ => {}
    }
    let found = fs::metadata(path).ok().map(|found| found.file_type());
    let is = |what: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(what);
    let (is_right, expected) = match kind {
        HostPathKind::Any => (true, ""),
        HostPathKind::DirectoryOrCreate | HostPathKind::Directory => (is(fs::FileType::is_dir), "directory"),
        HostPathKind::FileOrCreate | HostPathKind::File => (is(fs::FileType::is_file), "file"),
        HostPathKind::Socket => (is(FileTypeExt::is_socket), "socket file"),
        HostPathKind::CharDevice => (is(FileTypeExt::is_char_device), "character device"),
        HostPathKind::BlockDevice => (is(FileTypeExt::is_block_device), "block device"),
    };
    if is_right { Ok(()) } else { Err(VolumeError::OtherKind { path: path.to_owned(), expected }) }
}

/// Creates a directory of the host and its missing parents.
fn host_directory(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    make(trusted(above)?, name, 0o755).map(drop)
}

/// Assigns a directory with all files and directories below it to a group, with the permissions of
/// their owner. Links are skipped (kubelet: `pkg/volume/volume_linux.go`: `changeFilePermission`).
pub(super) fn apply_fs_group(top: &OwnedFd, group: u32) -> io::Result<()> {
    // Paths of the directories still to do. Only one of them is open at a time.
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let directory = open(top, &path, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refuse)?;
        give(&directory, group)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = match openat(&directory, name, flags, Mode::empty()) {
                Err(Errno::LOOP) => continue,
                opened => opened?,
            };
            match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
                FileType::Directory => left.push(path.join(name)),
                FileType::RegularFile => give(&opened, group)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Assigns one file or directory to a group.
pub(super) fn give(file: &OwnedFd, group: u32) -> io::Result<()> {
    let found = fstat(file)?;
    fchown(file, None, Some(Gid::from_raw(group)))?;
    let mode = found.st_mode & 0o7777;
    let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let of_group = if is_directory { GROUP_DIRECTORY_MODE } else { (mode & 0o600) >> 3 };
    Ok(fchmod(file, Mode::from_raw_mode(mode | of_group))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::super::beneath::open_or_make;
    use super::*;
    use crate::kubelet::pod_dir::tests::limited;

    /// A volume may have more directories on one level than a process may have descriptors.
    #[test]
    fn fs_group_applies_to_any_number_of_directories() {
        let group = rustix::process::getegid().as_raw();
        if let Some(directory) = limited::directory() {
            let top = open(trusted(&directory).unwrap(), Path::new("v"), OFlags::RDONLY, Links::Refuse);
            return apply_fs_group(&top.unwrap(), group).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let parent = trusted(dir.path()).unwrap();
        for number in 0..100 {
            open_or_make(&parent, &Path::new("v").join(format!("{number}/a/b")), 0o700, Links::Refuse)
                .unwrap();
        }
        limited::run(
            concat!(module_path!(), "::fs_group_applies_to_any_number_of_directories"),
            "-n 64",
            dir.path(),
        );
        for path in ["v", "v/0", "v/57/a", "v/99/a/b"] {
            assert_eq!(fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777, 0o2770, "{path}");
        }
    }
}
