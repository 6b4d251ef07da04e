//! Lookups below a directory that other processes may change at any time. No lookup leads out of
//! the directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2, readlinkat,
};
use rustix::io::Errno;

/// Number of calls of `openat2` that concurrent renames may disturb (EAGAIN), before the lookup is
/// done component by component.
const MAX_OPENAT2_CALLS: u32 = 64;

/// Maximum number of links that one lookup follows, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Whether links on a path are followed. A link never leads out of the directory in which the
/// lookup begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Links are followed, as users of volumes expect.
    Follow,
    /// Links are refused with ELOOP: no path of probeshim contains a link.
    Refuse,
}

/// Opens an absolute path and follows its links. The path must be a directory of probeshim, or a
/// hostPath, in which the kubelet follows links too.
pub(super) fn trusted(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens an absolute path. Fails with ELOOP if the path contains a link.
pub(in crate::kubelet) fn without_links(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let below = path.strip_prefix("/").map_err(|_| Errno::INVAL)?;
    open(trusted(Path::new("/"))?, below, flags, Links::Refuse)
}

/// Opens a path below a directory. Fails with EXDEV if the path or a link on it leads out of the
/// directory.
pub(super) fn open(dir: impl AsFd, path: &Path, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::CLOEXEC;
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    let opened = try_openat2(|| openat2(dir.as_fd(), path, flags, Mode::empty(), resolve));
    opened.map_or_else(|| walk(dir.as_fd(), path, flags, links), |opened| Ok(opened?))
}

/// Opens an entry of a directory without following a link. Fails with EXDEV if the entry is a mount
/// point.
pub(super) fn open_on_same_mount(dir: impl AsFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    if !is_name(name) {
        return Err(Errno::INVAL.into());
    }
    let (dir, flags) = (dir.as_fd(), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match try_openat2(|| openat2(dir, name, flags, Mode::empty(), resolve)) {
        Some(opened) => Ok(opened?),
        None => open_with_mount_id(dir, name, flags),
    }
}

/// Opens an entry of a directory as `open_on_same_mount` does, on kernels without `openat2`.
fn open_with_mount_id(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let opened = openat(dir, name, flags, Mode::empty())?;
    if mount_id(dir)? == mount_id(opened.as_fd())? { Ok(opened) } else { Err(Errno::XDEV.into()) }
}

/// Returns the id of the mount on which a descriptor is open.
fn mount_id(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Calls `openat2` until the call is not disturbed. Returns `None` if the lookup must be done
/// without `openat2`.
fn try_openat2(mut openat2: impl FnMut() -> Result<OwnedFd, Errno>) -> Option<Result<OwnedFd, Errno>> {
    for _ in 0..MAX_OPENAT2_CALLS {
        match openat2() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The kernel is older than Linux 5.6, or a seccomp filter does not know `openat2`.
            Err(Errno::NOSYS | Errno::PERM) => return None,
            opened => return Some(opened),
        }
    }
    None
}

/// Opens a path below a directory as `openat2` does, one component at a time. A descriptor holds
/// every directory on the path, so that renames cannot redirect the lookup.
fn walk(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut ahead = reversed(path)?;
    let mut passed = vec![openat(dir, ".", step | OFlags::DIRECTORY, Mode::empty())?];
    let mut link_count = 0;
    while let Some(name) = ahead.pop() {
        if name == ".." {
            passed.pop();
            if passed.is_empty() {
                return Err(Errno::XDEV.into());
            }
            continue;
        }
        let parent = passed.last().ok_or(Errno::XDEV)?;
        let next = openat(parent, &name, step, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&next)?.st_mode) {
            FileType::Symlink => {
                link_count += 1;
                if links == Links::Refuse || link_count > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes());
                ahead.extend(reversed(Path::new(&target))?);
            }
            kind => {
                let has_to_be = !ahead.is_empty() || flags.contains(OFlags::DIRECTORY);
                if has_to_be && kind != FileType::Directory {
                    return Err(Errno::NOTDIR.into());
                }
                passed.push(next);
            }
        }
    }
    let found = passed.pop().ok_or(Errno::XDEV)?;
    if flags.contains(OFlags::PATH) {
        return Ok(found);
    }
    Ok(openat(CWD, descriptor_path(&found), flags - OFlags::NOFOLLOW, Mode::empty())?)
}

/// Returns the components of a relative path, the last one first.
fn reversed(path: &Path) -> Result<Vec<OsString>, Errno> {
    let part = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Ok(Some(part.as_os_str().to_owned())),
        Component::CurDir => Ok(None),
        Component::RootDir | Component::Prefix(_) => Err(Errno::XDEV),
    };
    path.components().rev().filter_map(|it| part(it).transpose()).collect()
}

/// Returns the path in `/proc` of the file on which a descriptor is open.
pub(super) fn descriptor_path(descriptor: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

/// Opens a path below a directory with `O_PATH`. Creates missing directories with `mode`,
/// regardless of the umask. Fails with EEXIST if the path contains a dangling link.
pub(super) fn open_or_make(dir: impl AsFd, path: &Path, mode: u32, links: Links) -> io::Result<OwnedFd> {
    let is_missing = |opened: &io::Result<OwnedFd>| {
        opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let opened = open(&dir, path, OFlags::PATH, links);
    if !is_missing(&opened) {
        return opened;
    }
    let components: Vec<&OsStr> = path.components().map(Component::as_os_str).collect();
    let mut there = components.len();
    let mut parent = opened;
    while is_missing(&parent) && there > 0 {
        there -= 1;
        let prefix: PathBuf = components[..there].iter().collect();
        parent = open(&dir, &prefix, OFlags::PATH | OFlags::DIRECTORY, links);
    }
    let mut parent = parent?;
    for part in &components[there..] {
        parent = make(&parent, part, mode)?;
    }
    Ok(parent)
}

/// Creates a directory in another one if it does not exist, and opens it.
pub(super) fn make(parent: impl AsFd, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    if !is_name(name) {
        return Err(Errno::INVAL.into());
    }
    let mode = Mode::from_raw_mode(mode);
    let result = mkdirat(&parent, name, mode);
    if let Err(error) = result
        && error != Errno::EXIST
    {
        return Err(error.into());
    }
    // The directory may have been replaced meanwhile. A link is not followed. Another directory is
    // in the same parent, and is accepted.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match (openat(&parent, name, flags, Mode::empty()), result) {
        (Ok(opened), Ok(())) => {
            fchmod(&opened, mode)?;
            Ok(opened)
        }
        (Err(Errno::NOTDIR | Errno::LOOP), Err(error)) => Err(error.into()),
        (opened, _) => Ok(opened?),
    }
}

/// Writes a file in a directory. Overwrites an existing file.
pub(super) fn write_file(parent: impl AsFd, name: &OsStr, content: &[u8], mode: u32) -> io::Result<()> {
    if !is_name(name) {
        return Err(Errno::INVAL.into());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(parent, name, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(content)?;
    Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
}

/// Returns whether a text is the name of one entry of a directory.
pub(super) fn is_name(text: &OsStr) -> bool {
    let mut components = Path::new(text).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == text)
}

#[cfg(test)]
mod tests;
