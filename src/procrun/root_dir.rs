//! Root directory, with the directories of containers. One runtime at a time holds it.

use crate::lockfile::{LockError, LockFile};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

/// Name of the directory with the containers' directories, and prefix of those that earlier
/// runtimes left. procrun changes nothing else in the root directory, except its lock file.
const CONTAINERS: &str = "procrun-containers";

/// Number of attempts to remove the directories of an earlier runtime, and the pause between
/// attempts.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Root directory, locked until this is dropped.
#[derive(Debug)]
pub(super) struct Root {
    dir: PathBuf,
    _lock: LockFile,
}

impl Root {
    /// Locks a directory, which is created if it is missing. Containers' directories that a killed
    /// runtime left are moved aside.
    pub(super) fn lock(dir: &Path) -> io::Result<Self> {
        // Only the owner has access: other users must neither read the directory nor hold the lock.
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let directory = dir.canonicalize()?;
        check_owner(&directory)?;
        let lock = LockFile::acquire(&directory.join("procrun")).map_err(|error| match error {
            held @ LockError::Held { .. } => {
                let reason = format!("another procrun uses this directory: {held}");
                io::Error::new(io::ErrorKind::ResourceBusy, reason)
            }
            LockError::Io { source, .. } => source,
            not_a_lock @ LockError::NotALock { .. } => io::Error::other(not_a_lock),
        })?;
        let root = Self { dir: directory, _lock: lock };
        let containers = root.containers();
        if containers.symlink_metadata().is_ok() {
            let aside = format!("{CONTAINERS}.{:08x}", fastrand::u32(..));
            fs::rename(&containers, root.dir.join(aside))?;
        }
        // Files of containers are readable by the owner only.
        DirBuilder::new().mode(0o700).create(&containers)?;
        Ok(root)
    }

    /// Returns the directory of a container.
    pub(super) fn container_dir(&self, container: &str) -> PathBuf {
        self.containers().join(container)
    }

    /// Returns the directory with the directories of all containers.
    pub(super) fn containers(&self) -> PathBuf {
        self.dir.join(CONTAINERS)
    }

    /// Removes the directories that earlier runtimes left. Their monitors may still be running, so
    /// failed removals are repeated.
    pub(super) async fn remove_stale(&self) {
        let left = |dir: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let is_left =
                |name: &str| name.strip_prefix(CONTAINERS).is_some_and(|rest| rest.starts_with('.'));
            entries
                .filter(|entry| entry.file_name().to_str().is_some_and(is_left))
                .map(|entry| entry.path())
                .collect()
        };
        for path in left(&self.dir) {
            for attempt in 1..=ATTEMPTS {
                match remove(path.clone()).await {
                    Ok(()) => break,
                    Err(error) if attempt == ATTEMPTS => {
                        warn!(path = %path.display(), %error, "cannot remove a directory that an earlier procrun left");
                    }
                    Err(_) => sleep(PAUSE).await,
                }
            }
        }
    }

    /// Removes the directories of all containers.
    pub(super) async fn clear(&self) {
        let containers = self.containers();
        if let Err(error) = remove(containers.clone()).await {
            warn!(path = %containers.display(), %error, "cannot remove the directories of containers");
        }
    }
}

/// Fails if another user owns the directory or may write to it: such a user could replace the lock
/// and the directories of containers.
fn check_owner(directory: &Path) -> io::Result<()> {
    let found = fs::metadata(directory)?;
    let (shown, our_uid) = (directory.display(), rustix::process::geteuid().as_raw());
    let reason = if found.uid() != our_uid {
        format!("{shown} belongs to user {}, not to user {our_uid}", found.uid())
    } else if found.mode() & 0o002 != 0 {
        format!("{shown} is writable by every user (mode {:04o})", found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    let message =
        format!("{reason}: use a directory that only you can write to, or one that does not exist yet");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Removes a directory and its contents, even if a container removed its own permissions. Succeeds
/// if the directory does not exist.
pub(super) async fn remove(dir: PathBuf) -> io::Result<()> {
    let removing = spawn_blocking(move || {
        let removed = match fs::remove_dir_all(&dir) {
            Err(denied) if denied.kind() == io::ErrorKind::PermissionDenied => {
                make_removable(&dir);
                fs::remove_dir_all(&dir)
            }
            other => other,
        };
        match removed {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    });
    removing.await.map_err(io::Error::other)?
}

/// Gives the owner access to a directory and the directories below it, as far as procrun's user
/// owns them. Does not follow links.
fn make_removable(dir: &Path) {
    if !dir.symlink_metadata().is_ok_and(|file| file.is_dir()) {
        return;
    }
    let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        make_removable(&entry.path());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn other_users_can_neither_read_the_root_directory_nor_lock_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("a/root");
        let lock = dir.join("procrun.lock");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let root = Root::lock(&dir).unwrap();
        assert_eq!((mode(&dir), mode(&lock), mode(&root.containers())), (0o700, 0o600, 0o700));
        let refused = Root::lock(&dir).unwrap_err().to_string();
        assert!(refused.starts_with("another procrun uses this directory"), "{refused}");
        drop(root);
        // A lock file that an earlier version left.
        let mut open = OpenOptions::new();
        drop(open.write(true).create(true).truncate(true).mode(0o644).open(&lock).unwrap());
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        let _root = Root::lock(&dir).unwrap();
        assert_eq!(mode(&lock), 0o600);
    }

    /// In a shared directory such as /tmp, another user may create the root directory first.
    #[test]
    fn a_root_directory_of_another_user_or_writable_by_all_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("root");
        fs::create_dir(&dir).unwrap();
        for (mode, expected) in
            [(0o755, Ok(())), (0o777, Err("every user (mode 0777)")), (0o1777, Err("(mode 1777)"))]
        {
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            let claimed = Root::lock(&dir).map(drop).map_err(|error| error.to_string());
            match (&claimed, expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(reason)) => assert!(error.contains(reason), "{error}"),
                _ => panic!("{mode:o}: {claimed:?}"),
            }
        }
        assert!(!dir.join(CONTAINERS).exists() || fs::read_dir(dir.join(CONTAINERS)).unwrap().count() == 0);
        let our_uid = rustix::process::geteuid();
        // A directory that another user owns.
        let (other, owner) = if our_uid.is_root() {
            let other = temp.path().join("other");
            fs::create_dir(&other).unwrap();
            std::os::unix::fs::chown(&other, Some(4_242), None).unwrap();
            (other, 4_242)
        } else {
            (PathBuf::from("/"), 0)
        };
        let error = Root::lock(&other).unwrap_err().to_string();
        assert!(
            error.contains(&format!("belongs to user {owner}, not to user {}", our_uid.as_raw())),
            "{error}"
        );
        assert!(!other.join("procrun.lock").exists());
    }
}
