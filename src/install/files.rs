//! Writes and removes files so that a crash at any point leaves either the old content or the new.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::regular_file::sync_parent_dir;

/// Mode of directories that are created for files.
const DIR_MODE: u32 = 0o755;

/// Writes a file with this mode beside its path, and renames it. Missing directories are created
/// with mode 0755. The umask changes no mode.
pub(super) fn write_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (mut file, temporary) = create_temporary(path, mode)?;
    file.write_all(content)?;
    install(file, &temporary, path)
}

/// Copies a program to its path in the same way.
pub(super) fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    let mut program = File::open(from)?;
    let (mut file, temporary) = create_temporary(to, 0o755)?;
    io::copy(&mut program, &mut file)?;
    install(file, &temporary, to)
}

/// Creates the missing directories of a path with this mode, whatever the umask is.
pub(super) fn create_dirs(path: &Path, mode: u32) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dirs(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        // The umask may have removed bits.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
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

/// Removes a directory if it is empty. Returns whether it was removed. A link to a directory and a
/// mount point stay: their owner has made them.
pub(super) fn remove_empty_dir(path: &Path) -> io::Result<bool> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::DirectoryNotEmpty
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::ResourceBusy
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether a file has this content.
pub(super) fn has_content(path: &Path, content: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == content)
}

/// Creates the file under which the content of a path is written. What has its name, such as the
/// rest of an interrupted write or a link, is removed and never followed.
fn create_temporary(path: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    path.parent().map_or(Ok(()), |parent| create_dirs(parent, DIR_MODE))?;
    let temporary = temporary(path);
    remove_if_there(&temporary)?;
    // O_EXCL opens no link.
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok((file, temporary))
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
    use std::os::unix::fs::symlink;

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
    fn a_link_under_the_temporary_name_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["unit", "other"].map(|name| dir.path().join(name));
        fs::write(&other, "of another program").unwrap();
        for copies in [false, true] {
            symlink(&other, temporary(&path)).unwrap();
            if copies {
                copy_program(Path::new("/proc/self/exe"), &path).unwrap();
            } else {
                write_file(&path, b"unit", 0o644).unwrap();
            }
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert!(has_content(&other, b"of another program"));
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_link_to_a_directory_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| dir.path().join(name));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert!(!remove_empty_dir(&link).unwrap());
        assert!(link.is_dir());
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
