//! Removes a directory tree without crossing mount points or following links.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Dir, OFlags, renameat, unlinkat};
use rustix::io::Errno;

use super::beneath::{is_name, open_on_same_mount};

/// Maximum number of listings of the tree in which no directory was moved up. After that many,
/// another process is adding entries, and the removal fails.
const MAX_LISTINGS: u32 = 16;

/// Removes an entry of a directory with everything below it. Succeeds if the entry does not exist.
/// Links are removed and not followed. A mount point is neither entered nor removed: the removal
/// fails.
///
/// Directories are moved to the top of the tree before they are emptied, and are found there when
/// the tree is listed again. Stack, descriptors and memory therefore depend neither on the depth
/// nor on the width of the tree.
pub(super) fn remove(parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    if !is_name(name) {
        return Err(Errno::INVAL.into());
    }
    let parent = parent.as_fd();
    let Some(top) = open_directory(parent, name)? else {
        return unlink(parent, name, AtFlags::empty()).map(drop);
    };
    let mut listings = 0;
    while listings < MAX_LISTINGS {
        if !empty_directory(&top, &top)? {
            listings += 1;
        }
        if unlink(parent, name, AtFlags::REMOVEDIR)? {
            return Ok(());
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Removes the entries of a directory. Moves directories with content up to `top`. Directories that
/// are already in `top` are emptied in the same way and removed. Returns whether any directory was
/// moved.
fn empty_directory(directory: &OwnedFd, top: &OwnedFd) -> io::Result<bool> {
    let is_top = std::ptr::eq(directory, top);
    let mut has_moved = false;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            result => {
                is_removed(result, name)?;
                continue;
            }
        }
        if unlink(directory.as_fd(), name, AtFlags::REMOVEDIR)? {
            continue;
        }
        if is_top {
            if let Some(inner) = open_directory(top.as_fd(), name)? {
                has_moved |= empty_directory(&inner, top)?;
                unlink(top.as_fd(), name, AtFlags::REMOVEDIR)?;
            }
        } else {
            let moved = OsString::from(format!("..{:032x}", fastrand::u128(..)));
            has_moved |= is_removed(renameat(directory, name, top, &moved), name)?;
        }
    }
    Ok(has_moved)
}

/// Unlinks an entry. Returns whether the entry is gone; a directory with content remains.
fn unlink(parent: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> io::Result<bool> {
    is_removed(unlinkat(parent, name, flags), name)
}

/// Returns whether an operation has removed the entry `name` from its directory.
fn is_removed(result: Result<(), Errno>, name: &OsStr) -> io::Result<bool> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(Errno::BUSY) => Err(mount_point_error(name)),
        Err(error) => Err(named(name, &error.into())),
    }
}

/// Opens a directory on the same mount as its parent. Returns `None` if the entry does not exist or
/// is not a directory.
fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let opened = open_on_same_mount(parent, name, OFlags::RDONLY | OFlags::DIRECTORY);
    match opened.map_err(|error| (Errno::from_io_error(&error), error)) {
        Ok(opened) => Ok(Some(opened)),
        Err((Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), _)) => Ok(None),
        Err((Some(Errno::XDEV), _)) => Err(mount_point_error(name)),
        Err((_, error)) => Err(named(name, &error)),
    }
}

fn mount_point_error(name: &OsStr) -> io::Error {
    let reason = format!("{} is a mount point; mounted files are not removed", name.display());
    io::Error::new(io::ErrorKind::ResourceBusy, reason)
}

/// Adds the name of an entry to an error. The path of the entry may be as long as the tree is deep;
/// the caller adds the directory of the pod.
fn named(name: &OsStr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", name.display()))
}

#[cfg(test)]
mod tests;
