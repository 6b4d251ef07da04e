//! Taking a path for a listening socket without ever stealing it, and giving it back.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::{BoundListener, SocketPath};
use crate::file_id::FileId;
use crate::lockfile::{LockError, LockFile};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The mode of a socket that has no model to follow.
const DEFAULT_MODE: u32 = 0o660;

/// The mode of a socket that is for its owner alone.
const PRIVATE_MODE: u32 = 0o600;

/// Who may connect to a socket.
#[derive(Clone, Copy, Debug)]
pub enum BindMode<'a> {
    /// Whoever may connect to the runtime's socket: the same owner and mode, or mode 0660 where there is none yet. Never wider:
    /// where the group cannot be set, the group gets nothing.
    InheritFrom(&'a SocketPath),
    /// Its owner: mode 0600.
    OwnerOnly,
}

/// The hold on a socket's path: dropped, it removes the file, if that is still the one that was made here.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    file: FileId,
    _lock: LockFile,
}

/// Why a path cannot be listened on. What stands there and is alive, or is no socket, has been left alone.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// It is the very socket that calls would be forwarded to.
    #[error("{0} is the runtime's own socket: probeshim would call itself; listen on another path")]
    IsUpstream(PathBuf),
    /// A folder stands there.
    #[error("{0} is a folder; name a socket in it, such as {0}/probeshim.sock")]
    IsDirectory(PathBuf),
    /// Something stands there that is not a socket, and is not ours to remove.
    #[error("{0} exists and is not a socket; remove it or listen on another path")]
    NotASocket(PathBuf),
    /// Another process answers there.
    #[error("another process listens on {0}; stop it or listen on another path")]
    InUse(PathBuf),
    /// Another probeshim holds the path.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The system refused a step.
    #[error("cannot {step} {path}: {source}")]
    Io {
        /// What was being done, as a verb.
        step: &'static str,
        /// To which file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Listens on `path`. A missing parent folder is made, mode 0755. A stale socket is replaced; one that answers is not.
pub fn bind(path: &SocketPath, access: BindMode<'_>) -> Result<BoundListener, BindError> {
    create_parent(path.as_path())?;
    // Only where both folders exist can two ways to write one path be told.
    if let BindMode::InheritFrom(upstream) = access
        && path.is_same_as(upstream)
    {
        return Err(BindError::IsUpstream(path.as_path().into()));
    }
    let path = path.as_path();
    if path.is_dir() {
        return Err(BindError::IsDirectory(path.into()));
    }
    let lock = LockFile::acquire(path)?;
    remove_stale(path)?;

    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("make a socket for", path))?;
    let address = SockAddr::unix(path).map_err(failed("listen on", path))?;
    socket.bind(&address).map_err(failed("listen on", path))?;
    let file = FileId::from_path(path).map_err(failed("read", path))?;
    // From here on the file is given back, whatever fails.
    let claim = BoundPath { path: path.into(), file, _lock: lock };
    // Nobody can connect before listen(), so there is no moment at which the socket is open to more than it should be.
    let (model, mode) = match access {
        BindMode::InheritFrom(upstream) => (fs::metadata(upstream.as_path()).ok(), DEFAULT_MODE),
        BindMode::OwnerOnly => (None, PRIVATE_MODE),
    };
    set_access(path, model.as_ref(), mode)?;
    socket.listen(BACKLOG).map_err(failed("listen on", path))?;
    socket.set_nonblocking(true).map_err(failed("listen on", path))?;
    Ok(BoundListener { listener: socket.into(), claim: Some(claim) })
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if FileId::from_path(&self.path).is_ok_and(|now| now == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BindError {
    let path = path.to_owned();
    move |source| BindError::Io { step, path, source }
}

/// Makes the missing folders above `path`, each with mode 0755, whatever the umask.
fn create_parent(path: &Path) -> Result<(), BindError> {
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        match DirBuilder::new().create(dir) {
            Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o755)),
            Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(other) => Err(other),
        }
        .map_err(failed("make the folder", dir))?;
    }
    Ok(())
}

/// Clears the path of a socket that nobody listens on, and of nothing else.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    match fs::symlink_metadata(path) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(other) => return Err(failed("read", path)(other)),
        Ok(file) if !file.file_type().is_socket() => return Err(BindError::NotASocket(path.into())),
        Ok(_) => {}
    }
    let address = SockAddr::unix(path).map_err(failed("read", path))?;
    let knock = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        // A listener with a full backlog would hold a blocking connect.
        socket.set_nonblocking(true)?;
        socket.connect(&address)
    });
    match knock {
        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed("remove the stale socket", path))
        }
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(denied) if denied.kind() == io::ErrorKind::PermissionDenied => {
            Err(failed("connect to", path)(denied))
        }
        // Accepted, would block, or speaks another protocol: someone is there.
        _ => Err(BindError::InUse(path.into())),
    }
}

/// Gives the socket the owner and mode of `model`, or `mode` where there is none.
fn set_access(path: &Path, model: Option<&Metadata>, mut mode: u32) -> Result<(), BindError> {
    if let Some(model) = model {
        mode = model.mode() & 0o777;
        let (uid, gid) = (Some(model.uid()), Some(model.gid()));
        // Without CAP_CHOWN the owner stays ours, and the group may be set only to one that we are in.
        if chown(path, uid, gid).is_err() && chown(path, None, gid).is_err() {
            mode &= !0o070;
        }
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set the mode of", path))
}

#[cfg(test)]
mod tests;
