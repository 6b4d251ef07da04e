//! Writes the files of a volume so that all of them change at the same time. The files are links
//! into a directory, and that directory is reached by a link itself (kubelet:
//! `pkg/volume/util/atomic_writer.go`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, fchmod, readlinkat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::beneath::{self, Links, make, open_or_make};
use super::payload::{Payload, PayloadFile};
use super::volumes::GroupAccess;
use super::{removal, volumes};
use crate::hex::hex;

/// Link to the current directory of files.
const DATA: &str = "..data";

/// Temporary name of the next link, which then replaces the current one.
const NEXT: &str = "..data_tmp";

/// Mode of the directories that hold files.
const DIRECTORY_MODE: u32 = 0o755;

/// Returns whether files were written to a volume before.
pub(super) fn has_files(volume: &OwnedFd) -> bool {
    readlinkat(volume, DATA, Vec::new()).is_ok()
}

/// Writes the files of a volume, and assigns new files to a group. If the files are up to date,
/// only completes an update that a crash interrupted. `mode`: mode of the volume's directory.
pub(super) fn write(volume: &OwnedFd, files: &Payload, mode: u32, group: Option<u32>) -> io::Result<()> {
    let mut digest = Sha256::new();
    for (path, PayloadFile { mode, content }) in files {
        digest.update(format!("{path}\0{mode:o}\0{}\0", content.len()));
        digest.update(content);
    }
    let digest = digest.finalize();
    let name = format!("..{}", hex(&digest[..8]));
    let current = readlinkat(volume, DATA, Vec::new()).ok().map(|link| OsString::from_vec(link.into_bytes()));
    if current.as_deref() != Some(OsStr::new(&name)) {
        let dir = make(volume, OsStr::new(&name), DIRECTORY_MODE)?;
        for (path, PayloadFile { mode, content }) in files {
            write_file(&dir, path, content, *mode)?;
        }
        fchmod(volume, Mode::from_raw_mode(mode))?;
        if let Some(group) = group {
            volumes::give(volume, group, GroupAccess::ReadOnly)?;
            volumes::apply_fs_group(&dir, group)?;
        }
        ignore_missing(unlinkat(volume, NEXT, AtFlags::empty()))?;
        symlinkat(&name, volume, NEXT)?;
        renameat(volume, NEXT, volume, DATA)?;
    }
    let names = files.keys().filter_map(|path| path.split('/').find(|part| !part.is_empty()));
    let names: BTreeSet<&str> = names.collect();
    for name in &names {
        if statat(volume, *name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            symlinkat(Path::new(DATA).join(name), volume, *name)?;
        }
    }
    remove_others(volume, &names, &name)
}

/// Removes the links to files that the volume no longer has, and the directories of earlier
/// contents. Other directories stay: a subPath that matches no file created them, and containers
/// may have them mounted.
fn remove_others(volume: &OwnedFd, names: &BTreeSet<&str>, current: &str) -> io::Result<()> {
    for entry in Dir::read_from(volume)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." || name == DATA || name == current {
            continue;
        }
        if name.as_bytes().starts_with(b"..") {
            removal::remove(volume, name)?;
        } else if !names.contains(&*name.to_string_lossy()) {
            match unlinkat(volume, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => {}
                removed => ignore_missing(removed)?,
            }
        }
    }
    Ok(())
}

/// Writes one file to a path below a directory.
fn write_file(dir: &OwnedFd, path: &str, content: &[u8], mode: u32) -> io::Result<()> {
    let path: PathBuf = Path::new(path).components().collect();
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let above = open_or_make(dir, above, DIRECTORY_MODE, Links::Refuse)?;
    beneath::write_file(above, name, content, mode)
}

/// Converts the error of a missing file into success.
fn ignore_missing(result: Result<(), Errno>) -> io::Result<()> {
    if result == Err(Errno::NOENT) { Ok(()) } else { Ok(result?) }
}
