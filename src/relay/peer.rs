//! Who is at the other end of a connection, as the kernel tells.

use std::fmt;

use tokio::net::UnixStream;

use crate::terminal::sanitize;

/// The process that opened a connection. It may be gone by now, or have passed the connection on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its process, as numbered here; `None` where it lives in another PID namespace.
    pub pid: Option<i32>,
    /// The name of its program, of at most 15 bytes (`/proc/PID/comm`), if it could be read. A process may call itself anything.
    pub program: Option<String>,
}

/// Programs that are kubelets, or have one in them.
const KUBELET_BINARIES: [&str; 6] = ["kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "hyperkube"];

impl Peer {
    /// Whether it is a kubelet, going by the name of its program.
    #[must_use]
    pub fn is_kubelet(&self) -> bool {
        self.program.as_deref().is_some_and(|program| KUBELET_BINARIES.contains(&program))
    }

    /// Asks the kernel (`SO_PEERCRED`) and, for the program's name, `/proc`.
    pub(crate) fn from_socket(stream: &UnixStream) -> Option<Self> {
        let credentials = stream.peer_cred().ok()?;
        // The kernel says 0 of a process that it cannot name here.
        let pid = credentials.pid().filter(|pid| *pid > 0);
        let program = pid
            .and_then(|pid| std::fs::read(format!("/proc/{pid}/comm")).ok())
            .map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned());
        Some(Self { uid: credentials.uid(), pid, program })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sanitize(self.program.as_deref().unwrap_or("?")))?;
        if let Some(pid) = self.pid {
            write!(f, "[{pid}]")?;
        }
        write!(f, " uid {}", self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_is_shown_as_its_codes() {
        let peer = Peer { uid: 7, pid: Some(12), program: Some("x\u{1b}[2J\ny".to_owned()) };
        assert_eq!(peer.to_string(), r"x\u{1b}[2J\ny[12] uid 7");
        let unknown = Peer { uid: 7, pid: None, program: None };
        assert_eq!(unknown.to_string(), "? uid 7");
    }
}
