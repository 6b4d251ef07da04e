//! The address of the node, which is that of pods in the node's network.

use std::net::{Ipv4Addr, UdpSocket};

/// An address that no host has (RFC 5737); the route to it is the default route.
const TEST_NET_ADDR: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// Returns the address from which the node reaches other networks, or the loopback address if it has no route. Sends nothing.
#[must_use]
pub fn node_ip() -> String {
    let out = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(TEST_NET_ADDR)?;
        socket.local_addr()
    };
    out().map_or_else(|_: std::io::Error| Ipv4Addr::LOCALHOST.to_string(), |local| local.ip().to_string())
}
