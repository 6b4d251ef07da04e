//! Processes with the name of a kubelet that are ignored, and the conditions that they do not meet.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::regular_file::path_of_deleted;

/// Name of the program of a kubelet: of its process (`/proc/PID/comm`) and of its file.
pub(super) const PROGRAM: &str = "kubelet";

/// Bits of the mode of a program that another user than its owner can change.
const WRITABLE_MODE_BITS: u32 = 0o022;

/// Bits of the mode of a program that gives the rights of its owner or group to the user who starts
/// it.
const SET_ID_MODE_BITS: u32 = 0o6000;

/// A process with the name of a kubelet that is ignored.
#[derive(Debug, thiserror::Error)]
#[error("the process {PROGRAM} (pid {pid}) is ignored, because {reason}")]
pub(crate) struct IgnoredKubelet {
    /// Process id.
    pub(crate) pid: u32,
    /// Reason why it is ignored.
    pub(crate) reason: IgnoreReason,
}

/// Reason why a process is ignored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IgnoreReason {
    /// Its runtime is neither that of probeshim nor probeshim.
    #[error("its runtime endpoint {0} is neither the runtime nor probeshim")]
    OtherRuntime(String),
    /// Another user than root can replace the content of its program.
    #[error("its program {} can be changed by others than root (uid {uid}, mode {mode:04o})", path.display())]
    WritableProgram {
        /// Path of the program.
        path: PathBuf,
        /// User who owns the program.
        uid: u32,
        /// Permission bits of the program.
        mode: u32,
    },
    /// Any user may have started its program with the rights of root.
    #[error("its program {} is set-user-id or set-group-id", .0.display())]
    SetIdProgram(PathBuf),
    /// The name of the process is that of a link, or was set by the process itself.
    #[error("its program {} has another name", .0.display())]
    OtherProgram(PathBuf),
    /// It belongs to another node, such as a container of kind.
    #[error("it is in another pid namespace than probeshim")]
    OtherPidNamespace,
    /// It has the rights of another user, or was started by one.
    #[error("root has not started it")]
    OtherUser,
    /// Its files below `/proc` cannot be read.
    #[error("it cannot be examined: {0}")]
    Unreadable(#[from] io::Error),
}

impl IgnoreReason {
    /// Returns whether the process has ended.
    pub(super) fn is_end(&self) -> bool {
        // Linux reports `ESRCH` if the process ends while its file is open.
        let esrch = Errno::SRCH.raw_os_error();
        let is_end = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(esrch)
        };
        matches!(self, Self::Unreadable(error) if is_end(error))
    }

    /// Fails unless root has started the process with this directory below `/proc`. A program with
    /// the set-user-id bit has root as effective user only, and a name and arguments that any user
    /// chooses.
    pub(super) fn check_user(dir: &Path) -> Result<(), Self> {
        let status = fs::read_to_string(dir.join("status"))?;
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        if uids.split_whitespace().eq(["0"; 4]) { Ok(()) } else { Err(Self::OtherUser) }
    }

    /// Fails unless the file that the process executes is the program of a kubelet, which only root
    /// can change. The name of the process is that of a link, which any user can create.
    pub(super) fn check_program(dir: &Path) -> Result<(), Self> {
        let exe = dir.join("exe");
        let (link, file) = (fs::read_link(&exe)?, fs::metadata(&exe)?);
        // An upgrade replaces the file of a process that still runs.
        let path = path_of_deleted(&link).unwrap_or(link);
        if path.file_name() != Some(OsStr::new(PROGRAM)) {
            return Err(Self::OtherProgram(path));
        }
        Self::check_permissions(path, file.uid(), file.mode())
    }

    fn check_permissions(path: PathBuf, uid: u32, mode: u32) -> Result<(), Self> {
        if uid != 0 || mode & WRITABLE_MODE_BITS != 0 {
            return Err(Self::WritableProgram { path, uid, mode: mode & 0o7777 });
        }
        if mode & SET_ID_MODE_BITS == 0 { Ok(()) } else { Err(Self::SetIdProgram(path)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_others_than_root_can_change_is_ignored_with_its_owner_and_mode() {
        let reason = |uid, mode| IgnoreReason::check_permissions("/usr/bin/kubelet".into(), uid, mode);
        assert!(reason(0, 0o100_755).is_ok());
        for (uid, mode) in [(1000, 0o755), (0, 0o775), (0, 0o757), (0, 0o4755), (0, 0o2755)] {
            assert!(reason(uid, mode).is_err(), "{uid} {mode:o}");
        }
        let ignored = IgnoredKubelet { pid: 812, reason: reason(1000, 0o100_755).unwrap_err() };
        assert_eq!(
            ignored.to_string(),
            "the process kubelet (pid 812) is ignored, because its program /usr/bin/kubelet can be changed by others \
             than root (uid 1000, mode 0755)"
        );
    }
}
