//! Binds a listening socket to a path without taking the path from another process, and removes the
//! file at the end.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::{BoundListener, SocketPath};
use crate::file_id::FileId;
use crate::lockfile::{LockError, LockFile};

/// Maximum number of connections that wait to be accepted. The kernel caps it at
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Mode of a socket that inherits no access.
const DEFAULT_MODE: u32 = 0o660;

/// Mode of a socket that only its owner may use.
const PRIVATE_MODE: u32 = 0o600;

/// Mode of a socket to which every user may connect.
const PUBLIC_MODE: u32 = 0o666;

/// Users who may connect to a socket.
#[derive(Clone, Copy, Debug)]
pub enum BindMode<'a> {
    /// The users who may connect to the runtime's socket. The owner and the mode are those of that
    /// socket, or the mode is 0660 if there is none yet. Access is never wider: if the group cannot
    /// be set, the group gets no access.
    InheritFrom(&'a SocketPath),
    /// The owner only: mode 0600.
    OwnerOnly,
    /// Every user: mode 0666. The server checks the user of each connection.
    Everyone,
}

/// The claim on a socket's path. When dropped, it removes the file if the file is still the one
/// created here.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    file: FileId,
    _lock: LockFile,
}

/// Reason why a path cannot be listened on. A live socket, and a file that is not a socket, are
/// left alone.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The path is the socket to which calls would be forwarded.
    #[error("{0} is the runtime's own socket: probeshim would call itself; listen on another path")]
    IsUpstream(PathBuf),
    /// The path is a directory.
    #[error("{0} is a directory; name a socket in it, such as {0}/probeshim.sock")]
    IsDirectory(PathBuf),
    /// The path is a file that is not a socket, which probeshim does not remove.
    #[error("{0} exists and is not a socket; remove it or listen on another path")]
    NotASocket(PathBuf),
    /// Another process listens on the path.
    #[error("another process listens on {0}; stop it or listen on another path")]
    InUse(PathBuf),
    /// Another probeshim holds the lock of the path.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The operating system refused a step.
    #[error("cannot {step} {path}: {source}")]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// Path of the file that the step was about.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Listens on `path`. Creates a missing parent directory with mode 0755. Replaces a stale socket,
/// but not one on which a process listens.
pub fn bind(path: &SocketPath, access: BindMode<'_>) -> Result<BoundListener, BindError> {
    create_parent(path.as_path())?;
    // Two spellings of one path can be compared only if both parent directories exist.
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

    let socket =
        Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("create a socket for", path))?;
    let address = SockAddr::unix(path).map_err(failed("listen on", path))?;
    socket.bind(&address).map_err(failed("listen on", path))?;
    let file = FileId::from_path(path).map_err(failed("read", path))?;
    // From here on the file is removed if a step fails.
    let claim = BoundPath { path: path.into(), file, _lock: lock };
    // No client can connect before listen(), so the socket is never open to more users than it
    // should be.
    let (model, mode) = match access {
        BindMode::InheritFrom(upstream) => (fs::metadata(upstream.as_path()).ok(), DEFAULT_MODE),
        BindMode::OwnerOnly => (None, PRIVATE_MODE),
        BindMode::Everyone => (None, PUBLIC_MODE),
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

/// Creates the missing directories above `path`, each with mode 0755, whatever the umask.
pub(crate) fn create_parent(path: &Path) -> Result<(), BindError> {
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        match DirBuilder::new().create(dir) {
            Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o755)),
            Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(other) => Err(other),
        }
        .map_err(failed("create the directory", dir))?;
    }
    Ok(())
}

/// Removes a socket on which no process listens. Any other file at the path is an error.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    match fs::symlink_metadata(path) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(other) => return Err(failed("read", path)(other)),
        Ok(file) if !file.file_type().is_socket() => return Err(BindError::NotASocket(path.into())),
        Ok(_) => {}
    }
    let address = SockAddr::unix(path).map_err(failed("read", path))?;
    let knock = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        // A blocking connect would wait for a listener whose backlog is full.
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
        // The connection was accepted, would block, or has another protocol type: a process
        // listens.
        _ => Err(BindError::InUse(path.into())),
    }
}

/// Sets the owner and the mode of the socket to those of `model`, or the mode to `mode` without a
/// model.
fn set_access(path: &Path, model: Option<&Metadata>, mut mode: u32) -> Result<(), BindError> {
    if let Some(model) = model {
        mode = model.mode() & 0o777;
        let (uid, gid) = (Some(model.uid()), Some(model.gid()));
        // Without CAP_CHOWN the owner cannot change, and the group can only become one of this
        // process's groups.
        if chown(path, uid, gid).is_err() && chown(path, None, gid).is_err() {
            mode &= !0o070;
        }
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set the mode of", path))
}

#[cfg(test)]
mod tests;
