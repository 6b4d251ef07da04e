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

/// Access of the pod's group to a volume.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupAccess {
    /// The group may read and write, as in an emptyDir.
    ReadWrite,
    /// The group may read, as in a volume of files.
    ReadOnly,
}

impl GroupAccess {
    /// Returns the mode bits that files, or directories, get in addition. New files inherit the
    /// group of their directory (kubelet: `pkg/volume/volume_linux.go`: `changeFilePermission`).
    pub(super) fn mask(self, is_directory: bool) -> u32 {
        let mask = match self {
            Self::ReadWrite => 0o660,
            Self::ReadOnly => 0o440,
        };
        if is_directory { mask | 0o2110 } else { mask }
    }
}

/// Returns the mode of the root of a volume of files. The kubelet has ConfigMaps on disk, and the
/// other kinds in a tmpfs (`configmap.go`, `secret.go`, `downwardapi.go`, `projected.go`:
/// `wrappedVolumeSpec`).
pub(super) fn root_mode(kind: FilesKind) -> u32 {
    match kind {
        FilesKind::ConfigMap => 0o777,
        FilesKind::Secret | FilesKind::DownwardApi | FilesKind::Projected => 0o1777,
    }
}

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

/// Assigns a directory with all files and directories below it to a group, which may read them.
/// Links are skipped.
pub(super) fn apply_fs_group(top: &OwnedFd, group: u32) -> io::Result<()> {
    // Paths of the directories still to do. Only one of them is open at a time.
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let directory = open(top, &path, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refuse)?;
        give(&directory, group, GroupAccess::ReadOnly)?;
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
                FileType::RegularFile => give(&opened, group, GroupAccess::ReadOnly)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Assigns one file or directory to a group.
pub(super) fn give(file: &OwnedFd, group: u32, access: GroupAccess) -> io::Result<()> {
    let found = fstat(file)?;
    fchown(file, None, Some(Gid::from_raw(group)))?;
    let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let mode = found.st_mode & 0o7777 | access.mask(is_directory);
    Ok(fchmod(file, Mode::from_raw_mode(mode))?)
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
            assert_eq!(fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777, 0o2750, "{path}");
        }
    }
}
