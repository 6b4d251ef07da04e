//! The folder below which containers have theirs, held by one runtime at a time.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Where the folders of containers are. Nothing else is ever touched.
const CONTAINERS: &str = "procrun-containers";

/// The hold on a folder.
#[derive(Debug)]
pub(super) struct Root {
    containers: PathBuf,
    _lock: File,
}

impl Root {
    /// Takes a folder, which is made where it is missing, and clears it of what an earlier runtime left that was killed.
    pub(super) fn claim(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let lock =
            File::options().write(true).create(true).truncate(false).open(folder.join("procrun.lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another procrun works there"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let containers = folder.canonicalize()?.join(CONTAINERS);
        if containers.exists() {
            fs::remove_dir_all(&containers)?;
        }
        // What containers write is their owner's business.
        DirBuilder::new().mode(0o700).create(&containers)?;
        Ok(Self { containers, _lock: lock })
    }

    /// The folder of a container.
    pub(super) fn of(&self, container: &str) -> PathBuf {
        self.containers.join(container)
    }

    /// Removes all of them.
    pub(super) fn clear(&self) {
        let _ = fs::remove_dir_all(&self.containers);
    }

    /// All of them together.
    pub(super) fn containers(&self) -> &Path {
        &self.containers
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.clear();
    }
}
