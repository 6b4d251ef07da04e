//! Removal of a directory with all that is in it, but of nothing that is mounted there.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;

use super::beneath::is_name;

/// Number of times that a directory is listed again because something has come into it meanwhile.
const MAX_LISTINGS: u32 = 16;

/// Removes an entry of a directory with all that is below it. It is no error if nothing is there. Links are removed, not followed. A mount
/// point is neither entered nor removed: it makes the removal fail.
///
/// Directories in directories are moved up before they are emptied, so that a deep tree takes neither stack nor descriptors.
pub(super) fn remove(parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    if !is_name(name) {
        return Err(Errno::INVAL.into());
    }
    let parent = parent.as_fd();
    let Some(top) = open_directory(parent, name, Path::new(name))? else {
        return unlink(parent, name, AtFlags::empty(), Path::new(name)).map(drop);
    };
    for _ in 0..MAX_LISTINGS {
        let mut directories = VecDeque::new();
        empty(&top, Path::new(name), &mut directories, None)?;
        while let Some((entry, path)) = directories.pop_front() {
            let Some(directory) = open_directory(top.as_fd(), &entry, &path)? else { continue };
            empty(&directory, &path, &mut directories, Some(&top))?;
            unlink(top.as_fd(), &entry, AtFlags::REMOVEDIR, &path)?;
        }
        if unlink(parent, name, AtFlags::REMOVEDIR, Path::new(name))? {
            return Ok(());
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Removes the entries of a directory that are no directories with content. Moves those up into `top`, if one is given, and queues their names
/// there with the paths that they had.
fn empty(
    directory: &OwnedFd,
    path: &Path,
    queue: &mut VecDeque<(OsString, PathBuf)>,
    top: Option<&OwnedFd>,
) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let path = path.join(name);
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            result => {
                gone(result, &path)?;
                continue;
            }
        }
        if unlink(directory.as_fd(), name, AtFlags::REMOVEDIR, &path)? {
            continue;
        }
        let Some(top) = top else {
            queue.push_back((name.to_owned(), path));
            continue;
        };
        let moved = OsString::from(format!("..{:032x}", fastrand::u128(..)));
        if gone(renameat(directory, name, top, &moved), &path)? {
            queue.push_back((moved, path));
        }
    }
    Ok(())
}

/// Unlinks an entry. Tells whether it is gone; a directory with content is not.
fn unlink(parent: BorrowedFd<'_>, name: &OsStr, flags: AtFlags, path: &Path) -> io::Result<bool> {
    gone(unlinkat(parent, name, flags), path)
}

fn gone(result: Result<(), Errno>, path: &Path) -> io::Result<bool> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(Errno::BUSY) => Err(mounted(path)),
        Err(error) => Err(io::Error::new(
            io::Error::from(error).kind(),
            format!("{}: {}", path.display(), io::Error::from(error)),
        )),
    }
}

fn mounted(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("{} is a mount point; what is mounted there is not removed", path.display()),
    )
}

/// Opens a directory that is on the same mount as its parent; `None` if the entry is none, or not there.
fn open_directory(parent: BorrowedFd<'_>, name: &OsStr, path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let opened = match openat2(parent, name, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => openat(parent, name, flags, Mode::empty()).and_then(|opened| {
            let is_same = mount_id(parent).is_some_and(|id| mount_id(opened.as_fd()) == Some(id));
            if is_same { Ok(opened) } else { Err(Errno::XDEV) }
        }),
        opened => opened,
    };
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(Errno::XDEV) => Err(mounted(path)),
        Err(error) => Err(io::Error::new(
            io::Error::from(error).kind(),
            format!("{}: {}", path.display(), io::Error::from(error)),
        )),
    }
}

/// Id of the mount that a descriptor is open on.
fn mount_id(descriptor: BorrowedFd<'_>) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
