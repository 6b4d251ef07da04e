//! Socket activation: systemd opens the socket, and passes it in `LISTEN_FDS`.

use std::env;
use std::io;
use std::path::Path;

use listenfd::ListenFd;
use socket2::SockRef;

use super::{BoundListener, SocketPath};

/// Reason why the sockets passed by systemd cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// The number of passed sockets is not one. probeshim serves exactly one socket.
    #[error(
        "LISTEN_FDS passes {0} sockets, but exactly one is served; give the .socket unit a single ListenStream="
    )]
    Count(usize),
    /// The passed file descriptor is not a unix stream socket.
    #[error("the file descriptor passed in LISTEN_FDS is not a unix stream socket: {0}")]
    Kind(#[from] io::Error),
    /// The passed unix stream socket does not listen.
    #[error("the socket passed in LISTEN_FDS does not listen; set Accept=no in the .socket unit")]
    NotListening,
    /// The passed socket is the one to which calls would be forwarded.
    #[error("the socket passed in LISTEN_FDS is the runtime's own socket {0}: probeshim would call itself")]
    IsUpstream(SocketPath),
}

/// Returns whether systemd passes sockets to this process.
#[must_use]
pub fn is_activated() -> bool {
    let is_for_us = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    is_for_us && env::var_os("LISTEN_FDS").is_some()
}

/// Takes the socket that systemd passed to this process. systemd keeps the ownership of its path.
pub fn from_systemd(upstream: &SocketPath) -> Result<BoundListener, ActivationError> {
    let mut passed = ListenFd::from_env();
    if passed.len() != 1 {
        return Err(ActivationError::Count(passed.len()));
    }
    let listener = passed.take_unix_listener(0)?.ok_or(ActivationError::Count(0))?;
    if !SockRef::from(&listener).is_listener()? {
        return Err(ActivationError::NotListening);
    }
    listener.set_nonblocking(true)?;
    let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
    if let Some(path) = path.and_then(|path| SocketPath::new(&path).ok())
        && path.is_same_as(upstream)
    {
        return Err(ActivationError::IsUpstream(path));
    }
    Ok(BoundListener { listener, claim: None })
}
