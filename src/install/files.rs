//! Writes and removes files so that a crash at any point leaves either the old content or the new.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::regular_file::sync_parent_dir;

/// Writes a file with this mode beside its path, and renames it. Missing directories are created.
pub(super) fn write_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    create_dirs(path)?;
    let temporary = temporary(path);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
    // The file may be left from an interrupted write, and the umask may have removed bits.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    install(file, &temporary, path)
}

/// Copies a program to its path in the same way.
pub(super) fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    create_dirs(to)?;
    let temporary = temporary(to);
    fs::copy(from, &temporary)?;
    let file = File::open(&temporary)?;
    file.set_permissions(Permissions::from_mode(0o755))?;
    install(file, &temporary, to)
}

/// Removes a file, and what an interrupted write has left beside it. Returns whether the file was
/// there.
pub(super) fn remove_file(path: &Path) -> io::Result<bool> {
    remove_if_there(&temporary(path))?;
    let was_there = remove_if_there(path)?;
    if was_there {
        sync_parent_dir(path)?;
    }
    Ok(was_there)
}

/// Removes a directory if it is empty. Returns whether it was removed.
pub(super) fn remove_empty_dir(path: &Path) -> io::Result<bool> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether a file has this content.
pub(super) fn has_content(path: &Path, content: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == content)
}

fn create_dirs(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Gives a complete file its name.
fn install(file: File, temporary: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)?;
    sync_parent_dir(path)
}

/// Returns the name under which a file is written. Its end hides it from systemd.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn remove_if_there(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/unit");
        fs::create_dir(dir.path().join("new")).unwrap();
        fs::write(temporary(&path), "left from an interrupted write").unwrap();
        write_file(&path, b"one", 0o600).unwrap();
        write_file(&path, b"two", 0o644).unwrap();
        assert!(has_content(&path, b"two"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_removed_file_leaves_nothing_even_after_an_interrupted_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("unit");
        fs::write(&path, "").unwrap();
        fs::write(temporary(&path), "").unwrap();
        assert!(remove_file(&path).unwrap());
        assert!(!remove_file(&path).unwrap());
        assert!(remove_empty_dir(dir.path()).unwrap());
        assert!(!remove_empty_dir(dir.path()).unwrap());
    }
}
