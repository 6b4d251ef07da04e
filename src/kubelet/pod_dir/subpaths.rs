//! Bind mounts of subPaths. The runtime mounts the file that was looked up, even if the path names
//! another file since (kubelet: `pkg/volume/util/subpath/subpath_linux.go`).

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::beneath::{Links, descriptor_path, open, open_or_make};
use super::error::{VolumeError, with_path};
use super::removal;
use crate::manifest::pod::VolumeMount;
use crate::probe::expand_with;

/// Directory below the pod's directory that holds the mount points of subPaths, as in the kubelet.
const SUBPATHS: &str = "volume-subpaths";

/// Mode of the directories above a mount point.
const MODE: u32 = 0o750;

/// Returns the mount point of a subPath, relative to the directory of the pod. `index` is the
/// position of the volumeMount in the container.
pub(super) fn target(volume: &str, container: &str, index: usize) -> PathBuf {
    Path::new(SUBPATHS).join(volume).join(container).join(index.to_string())
}

/// Returns the subPath of a volumeMount with its variables expanded. Checks it as the kubelet does
/// (`kubelet_pods.go`: `makeMounts`).
pub(super) fn expand(
    mount: &VolumeMount,
    variables: &HashMap<String, String>,
) -> Result<String, VolumeError> {
    let mut missing = BTreeSet::new();
    let sub_path = if mount.expands {
        let expanded = expand_with(&mount.sub_path, |name| {
            let value = variables.get(name).filter(|value| !value.is_empty());
            if value.is_none() {
                missing.insert(name.to_owned());
            }
            value.map(String::as_bytes)
        });
        String::from_utf8_lossy(&expanded).into_owned()
    } else {
        mount.sub_path.clone()
    };
    if !missing.is_empty() {
        return Err(VolumeError::MissingValues(missing.into_iter().collect()));
    }
    if sub_path.starts_with('/') {
        return Err(VolumeError::Absolute(sub_path));
    }
    if sub_path.split('/').any(|part| part == "..") {
        return Err(VolumeError::Backsteps(sub_path));
    }
    Ok(sub_path)
}

/// Opens the file or directory at a subPath of the volume at `path`. Creates missing directories
/// with the mode of the volume, so that every user of the volume may write to them. An error comes
/// with the action that the kubelet's message names.
pub(super) fn open_or_create(
    volume: impl AsFd,
    path: &Path,
    sub_path: &str,
) -> Result<OwnedFd, (&'static str, VolumeError)> {
    // This check selects only the message, so a race with a container is harmless.
    let is_missing = fs::metadata(path.join(sub_path)).is_err_and(|it| it.kind() == io::ErrorKind::NotFound);
    let action = if is_missing { "create subPath directory" } else { "prepare subPath" };
    let opened = fstat(&volume)
        .map_err(io::Error::from)
        .and_then(|found| open_or_make(&volume, Path::new(sub_path), found.st_mode & 0o7777, Links::Follow));
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::CrossesDevices => (action, VolumeError::Outside(sub_path.to_owned())),
        _ => (action, with_path(&path.join(sub_path))(error)),
    })
}

/// Bind-mounts the file behind a descriptor at a path below the directory of a pod. Fails if the
/// path exists.
pub(super) fn bind(pod: impl AsFd, target: &Path, source: &OwnedFd) -> io::Result<()> {
    let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let above = open_or_make(pod, above, MODE, Links::Refuse)?;
    if FileType::from_raw_mode(fstat(source)?.st_mode) == FileType::Directory {
        mkdirat(&above, name, Mode::from_raw_mode(MODE))?;
    } else {
        // A regular file is a mount point for everything but directories.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(&above, name, flags, Mode::from_raw_mode(0o640))?;
    }
    let target = openat(&above, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    Ok(mount_bind(descriptor_path(source), descriptor_path(&target))?)
}

/// Unmounts the subPaths of a container, and removes their mount points. Succeeds if there are
/// none.
pub(super) fn release(pod: impl AsFd, container: &str) -> io::Result<()> {
    for volume in list(&pod, Path::new(SUBPATHS))?.unwrap_or_default() {
        let directory = Path::new(SUBPATHS).join(volume).join(container);
        for index in list(&pod, &directory)?.unwrap_or_default() {
            unmount_at(&pod, &directory.join(index))?;
        }
        let Some(above) = directory.parent() else { continue };
        removal::remove(open(&pod, above, OFlags::PATH, Links::Refuse)?, OsStr::new(container))?;
    }
    Ok(())
}

/// Unmounts all mounts at a path below a directory. Succeeds if there are none.
pub(super) fn unmount_at(directory: impl AsFd, path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let above = match open(directory, above, OFlags::PATH | OFlags::DIRECTORY, Links::Refuse) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let point = Path::new(&descriptor_path(&above)).join(name);
    loop {
        match unmount(&point, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // The path is not a mount point, or does not exist.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            // A process without the right to mount has mounted nothing.
            Err(Errno::PERM) if !rustix::process::geteuid().is_root() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the names of the entries of a directory; `None` if the directory does not exist.
fn list(base: impl AsFd, path: &Path) -> io::Result<Option<Vec<OsString>>> {
    let directory = match open(base, path, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refuse) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(Some(names))
}
