//! Sets aside files that another version of probeshim wrote. The files are renamed; they are
//! neither deleted nor read.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tracing::warn;

use crate::regular_file::sync_parent_dir;

/// Renames a file that has another format version than this probeshim expects, syncs its directory,
/// and logs a warning. `found` is the version of the file, or `None` if it has no version. Returns
/// the new path, which did not exist before.
///
/// `state.redb` of version 7 becomes `state.redb.v7-set-aside-1`, or `state.redb.v7-set-aside-2` if
/// that name is taken.
pub fn set_aside(path: &Path, found: Option<u64>, expected: u64) -> io::Result<PathBuf> {
    let mut count = 1_u64;
    let new = loop {
        let new = new_path(path, found, count);
        match rename(path, &new) {
            Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => count += 1,
            renamed => break renamed.map(|()| new)?,
        }
    };
    sync_parent_dir(path)?;
    let (path, new_path) = (path.display(), new.display());
    let found = found.map_or_else(|| "none".to_owned(), |version| version.to_string());
    warn!(
        %path, version = found, expected_version = expected, %new_path,
        "a file of another format version was set aside; probeshim starts without its data"
    );
    Ok(new)
}

fn new_path(path: &Path, found: Option<u64>, count: u64) -> PathBuf {
    let version = found.map_or_else(|| "no-version".to_owned(), |version| format!("v{version}"));
    let mut name = OsString::from(path);
    name.push(format!(".{version}-set-aside-{count}"));
    name.into()
}

/// Renames a file. Fails with `AlreadyExists` if the new name is taken.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The filesystem or the kernel does not support `RENAME_NOREPLACE`.
        Err(Errno::INVAL | Errno::NOSYS) => match to.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(from, to),
        },
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_is_set_aside_gets_an_unused_name_with_its_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        for (found, content, name) in [
            (Some(7), "a", "data.v7-set-aside-1"),
            (Some(7), "b", "data.v7-set-aside-2"),
            (None, "c", "data.no-version-set-aside-1"),
            (None, "d", "data.no-version-set-aside-3"),
        ] {
            fs::write(&path, content).unwrap();
            let new = set_aside(&path, found, 1).unwrap();
            assert_eq!(new, directory.path().join(name));
            assert_eq!(fs::read_to_string(&new).unwrap(), content);
            assert!(!path.exists(), "{name}");
            // A dangling symlink also takes a name.
            let link = directory.path().join("data.no-version-set-aside-2");
            if found.is_none() && !link.is_symlink() {
                symlink("nothing", link).unwrap();
            }
        }
        assert_eq!(fs::read_to_string(directory.path().join("data.v7-set-aside-1")).unwrap(), "a");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_file_that_cannot_be_set_aside_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let error = set_aside(&directory.path().join("none"), Some(1), 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
