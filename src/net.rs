//! Address of the node, which is also the address of pods in the host's network.

use std::net::{Ipv4Addr, UdpSocket};

/// Address that no host has (RFC 5737). The route to it is the default route.
const TEST_NET_ADDR: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// Returns the address from which the node reaches other networks, or the loopback address if the
/// node has no route. Sends no packets.
#[must_use]
pub fn node_ip() -> String {
    let out = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(TEST_NET_ADDR)?;
        socket.local_addr()
    };
    out().map_or_else(|_: std::io::Error| Ipv4Addr::LOCALHOST.to_string(), |local| local.ip().to_string())
}
