//! Unix sockets: how their addresses are written, and how a socket file is taken, owned and given back.

mod activation;
mod address;
mod claim;
mod lock;

use std::os::unix::net::UnixListener;

pub use activation::{ActivationError, activated};
pub use address::{AddressError, SocketPath};
pub use claim::{Claim, ClaimError, claim};
pub use lock::LockError;

/// A unix socket that listens, and the file that belongs to it.
#[derive(Debug)]
pub struct Listening {
    /// Accepts connections; non-blocking.
    pub listener: UnixListener,
    /// Our hold on the socket's path, given back when dropped. `None` where systemd owns it.
    pub claim: Option<Claim>,
}
