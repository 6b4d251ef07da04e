//! Socket activation: systemd opened the socket and hands it over in `LISTEN_FDS`.

use std::io;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

/// Why the sockets that systemd passed cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// We serve one socket.
    #[error(
        "LISTEN_FDS passes {0} sockets, but exactly one is served; give the .socket unit a single ListenStream="
    )]
    Several(usize),
    /// Not a listening unix stream socket.
    #[error("the socket passed in LISTEN_FDS is not a listening unix stream socket: {0}")]
    Kind(#[from] io::Error),
}

/// The socket that systemd passed to this process, if it passed one. Its path stays systemd's.
pub fn activated() -> Result<Option<UnixListener>, ActivationError> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => Ok(None),
        1 => {
            let listener = passed.take_unix_listener(0)?;
            if let Some(listener) = &listener {
                listener.set_nonblocking(true)?;
            }
            Ok(listener)
        }
        several => Err(ActivationError::Several(several)),
    }
}
