//! Unix sockets: how their addresses are written, and how a socket file is taken, owned and given back.

mod accept;
mod activation;
mod address;
mod bind;

use std::os::unix::net::UnixListener;

pub use accept::Acceptor;
pub use activation::{ActivationError, from_systemd, is_activated};
pub use address::{AddressError, SocketPath};
pub use bind::{BindError, BindMode, BoundPath, bind};

/// A unix socket that listens, and the file that belongs to it.
#[derive(Debug)]
pub struct BoundListener {
    /// Accepts connections; non-blocking.
    pub listener: UnixListener,
    /// Our hold on the socket's path, given back when dropped. `None` where systemd owns it.
    pub claim: Option<BoundPath>,
}

/// The path that clients connect to, for people; systemd may have passed a socket without one.
#[must_use]
pub fn display_name(listener: &UnixListener) -> String {
    let address = listener.local_addr().ok();
    let path = address.as_ref().and_then(|address| address.as_pathname());
    path.map_or_else(|| "a socket without a path".to_owned(), |path| format!("unix://{}", path.display()))
}
