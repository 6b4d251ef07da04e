//! Instances of `play` with a free name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Environment, InstanceName};
use crate::lockfile::{LockError, LockFile};
use crate::socket::{SocketPath, create_parent};

/// Name in the directory of an instance that `play` has chosen. Its lock is held while the instance
/// is in use.
const MARK: &str = "instance";

/// Maximum number of instances with chosen names at a time.
const MAX_INSTANCES: u32 = 1000;

/// An instance with the name `auto-N` that no other process uses while this one holds it. The name
/// of a process that has ended is used again, with what that left in its state directory.
#[derive(Clone, Debug)]
pub struct FreeInstance {
    /// The name.
    pub name: InstanceName,
    mark: Arc<Mark>,
}

/// The mark of an instance that is in use. The directory of the sockets is removed with it, unless
/// it has other files.
#[derive(Debug)]
struct Mark {
    lock: Option<LockFile>,
    dir: PathBuf,
}

impl FreeInstance {
    /// Returns whether a socket is in the directory of the instance.
    #[must_use]
    pub fn has_socket(&self, socket: &SocketPath) -> bool {
        socket.as_path().parent() == Some(&*self.mark.dir)
    }

    /// Chooses the first free name, and creates the directory of the sockets.
    pub(super) fn choose(around: &Environment) -> Result<Self, String> {
        for number in 1..=MAX_INSTANCES {
            let name = InstanceName::chosen(number);
            let mark = around.of_instance(Some(&name)).default_socket(MARK)?;
            if let Some(mark) = Mark::acquire(mark.as_path())? {
                return Ok(Self { name, mark: Arc::new(mark) });
            }
        }
        Err(format!("all of auto-1 to auto-{MAX_INSTANCES} are in use"))
    }
}

impl Mark {
    /// Returns the mark at this path; `None` if another process has it.
    fn acquire(path: &Path) -> Result<Option<Self>, String> {
        loop {
            create_parent(path).map_err(|error| error.to_string())?;
            match LockFile::acquire(path) {
                Ok(lock) => {
                    let dir = path.parent().unwrap_or(path).to_owned();
                    return Ok(Some(Self { lock: Some(lock), dir }));
                }
                Err(LockError::Held { .. }) => return Ok(None),
                // The process that had the mark has just removed the directory.
                Err(LockError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        drop(self.lock.take());
        let _ = fs::remove_dir(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(run: &Path) -> Environment {
        Environment { user: 1000, runtime_dir: Some(run.to_owned()), ..Environment::detect() }
    }

    #[test]
    fn the_first_name_that_no_process_uses_is_chosen() {
        let run = tempfile::tempdir().unwrap();
        let choose = || FreeInstance::choose(&around(run.path())).unwrap();
        let (first, second) = (choose(), choose());
        assert_eq!([&first, &second].map(|it| it.name.to_string()), ["auto-1", "auto-2"]);
        drop(first);
        assert_eq!(choose().name.to_string(), "auto-1");
        drop(second);
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0, "the directories are left");
    }

    #[test]
    fn a_path_that_is_no_directory_is_an_error() {
        let run = tempfile::tempdir().unwrap();
        std::fs::write(run.path().join("probeshim-auto-1"), "").unwrap();
        let error = FreeInstance::choose(&around(run.path())).unwrap_err();
        assert!(error.contains("/probeshim-auto-1"), "{error}");
    }
}
