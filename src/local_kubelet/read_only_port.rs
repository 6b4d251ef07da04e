//! Verifies that the read-only port of a kubelet is the kubelet's. Any user may bind the port while
//! the kubelet does not.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use procfs::net::{TcpNetEntries, TcpNetEntry, TcpState};
use procfs::{FromReadSI as _, current_system_info};

use super::process::KubeletProcess;

/// The socket that listens at the read-only port, and belongs to the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListeningSocket {
    inode: u64,
}

/// Reason why a read-only port is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PortError {
    /// No process listens.
    #[error("no process listens on port {0}")]
    Closed(u16),
    /// Another process listens.
    #[error("ignored, because a process of uid {uid} listens there, and not the kubelet (pid {kubelet})")]
    Foreign {
        /// The port.
        port: u16,
        /// User of the socket.
        uid: u32,
        /// Process id of the kubelet.
        kubelet: u32,
    },
}

impl PortError {
    /// Returns the port.
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Closed(port) | Self::Foreign { port, .. } => *port,
        }
    }
}

impl ListeningSocket {
    /// Returns the socket to which a connection to this address leads, if the kubelet owns it.
    pub(crate) fn of_kubelet(
        proc: &Path,
        kubelet: &KubeletProcess,
        address: IpAddr,
        port: u16,
    ) -> Result<Self, PortError> {
        let mut found = None;
        for TcpNetEntry { inode, uid, .. } in listeners(proc, address, port) {
            // Several sockets may share a port; the kernel chooses one of them for a connection.
            if uid != 0 || !kubelet.has_socket(proc, inode) {
                return Err(PortError::Foreign { port, uid, kubelet: kubelet.pid });
            }
            found = Some(Self { inode });
        }
        found.ok_or(PortError::Closed(port))
    }
}

/// Returns the sockets that accept connections to an address.
fn listeners(proc: &Path, address: IpAddr, port: u16) -> Vec<TcpNetEntry> {
    let tables = ["net/tcp", "net/tcp6"].map(|name| fs::File::open(proc.join(name)));
    let entries = tables.into_iter().flatten().flat_map(|table| {
        TcpNetEntries::from_read(table, current_system_info()).map(|table| table.0).unwrap_or_default()
    });
    let is_listener =
        |entry: &TcpNetEntry| entry.state == TcpState::Listen && entry.local_address.port() == port;
    let (exact, others): (Vec<_>, Vec<_>) =
        entries.filter(is_listener).partition(|entry| entry.local_address.ip().to_canonical() == address);
    // The kernel prefers the sockets of the address itself (`__inet_lookup_listener`), so that a
    // socket of all IPv6 addresses, which may refuse IPv4, is no rival of them.
    if !exact.is_empty() {
        return exact;
    }
    let accepts = |entry: &TcpNetEntry| match entry.local_address.ip() {
        IpAddr::V4(any) => any.is_unspecified() && address.is_ipv4(),
        // The kernel does not show whether the socket accepts IPv4.
        IpAddr::V6(any) => any.is_unspecified(),
    };
    others.into_iter().filter(accepts).collect()
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::FakeProc;
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    /// Returns the line of a socket that listens at port 10255 of `address`, in hexadecimal digits.
    fn line(address: &str, uid: u32, inode: u64) -> String {
        format!(
            "   0: {address}:280F 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1 0\n"
        )
    }

    fn verified(lines: &[String], six: &[String]) -> Result<ListeningSocket, PortError> {
        verified_at("127.0.0.1", lines, six)
    }

    fn verified_at(address: &str, lines: &[String], six: &[String]) -> Result<ListeningSocket, PortError> {
        let proc = FakeProc::new();
        proc.add(23, "kubelet", 0, "pid:[1]", &["kubelet"]);
        proc.add_socket(23, 77);
        fs::create_dir(proc.path().join("net")).unwrap();
        fs::write(proc.path().join("net/tcp"), HEAD.to_owned() + &lines.concat()).unwrap();
        fs::write(proc.path().join("net/tcp6"), HEAD.to_owned() + &six.concat()).unwrap();
        let kubelet = KubeletProcess::find(proc.path(), 1).0.remove(0);
        ListeningSocket::of_kubelet(proc.path(), &kubelet, address.parse().unwrap(), 10255)
    }

    #[test]
    fn only_a_socket_of_the_kubelet_is_used() {
        let any6 = "0".repeat(32);
        assert_eq!(verified(&[], &[]), Err(PortError::Closed(10255)));
        assert_eq!(verified(&[line("0100007F", 0, 77)], &[]), Ok(ListeningSocket { inode: 77 }));
        assert_eq!(verified(&[], &[line(&any6, 0, 77)]), Ok(ListeningSocket { inode: 77 }));
        let foreign = |uid| Err(PortError::Foreign { port: 10255, uid, kubelet: 23 });
        assert_eq!(
            verified(&[line("0100007F", 1000, 88)], &[]),
            foreign(1000),
            "a user has bound the free port"
        );
        assert_eq!(verified(&[line("00000000", 0, 88)], &[]), foreign(0), "another process of root");
        let both = verified(&[line("0100007F", 1000, 88)], &[line(&any6, 0, 77)]);
        assert_eq!(both, foreign(1000), "a user has bound the more specific address");
        let any = verified(&[line("0100007F", 0, 77)], &[line(&any6, 1000, 88)]);
        assert_eq!(any, Ok(ListeningSocket { inode: 77 }), "a user has bound IPv6 addresses only");
        let any = verified(&[line("00000000", 0, 77)], &[line(&any6, 1000, 88)]);
        assert_eq!(any, foreign(1000), "both may accept the connection");
        let six = verified_at("::1", &[line("00000000", 1000, 88)], &[line(&any6, 0, 77)]);
        assert_eq!(six, Ok(ListeningSocket { inode: 77 }), "a user has bound IPv4 addresses only");
        assert_eq!(
            verified(&[line("0200007F", 1000, 88)], &[]),
            Err(PortError::Closed(10255)),
            "another address"
        );
    }
}
