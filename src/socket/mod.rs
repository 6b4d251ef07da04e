//! Unix sockets: their addresses, and the creation, the ownership and the removal of their files.

mod accept;
mod activation;
mod address;
mod bind;

use std::os::unix::net::UnixListener;

pub use accept::Acceptor;
pub use activation::{ActivationError, from_systemd, is_activated};
pub use address::{AddressError, SocketPath};
pub(crate) use bind::create_parent;
pub use bind::{BindError, BindMode, BoundPath, bind};

/// A listening unix socket, and the claim on its file.
#[derive(Debug)]
pub struct BoundListener {
    /// Non-blocking listener.
    pub listener: UnixListener,
    /// Claim on the socket's path, which is released when dropped. `None` if systemd owns the path.
    pub claim: Option<BoundPath>,
}

/// Returns the address to which clients connect, for display. systemd may pass a socket without a
/// path.
#[must_use]
pub fn display_name(listener: &UnixListener) -> String {
    let address = listener.local_addr().ok();
    let path = address.as_ref().and_then(|address| address.as_pathname());
    path.map_or_else(|| "a socket without a path".to_owned(), |path| format!("unix://{}", path.display()))
}
