//! The address of the node, which the pods in its network have.

use std::net::{Ipv4Addr, UdpSocket};

/// An address that is nobody's, far away: the way there is the way out.
const TEST_NET_ADDR: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// The address from which the node would call somebody far away; this host's own where there is no way out. Nothing is sent.
pub(crate) fn node_ip() -> String {
    let out = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(TEST_NET_ADDR)?;
        socket.local_addr()
    };
    out().map_or_else(|_: std::io::Error| Ipv4Addr::LOCALHOST.to_string(), |local| local.ip().to_string())
}
