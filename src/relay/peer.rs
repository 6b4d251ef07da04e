//! The process at the other end of a connection, as the kernel reports it.

use std::fmt;

use tokio::net::UnixStream;

use crate::terminal::sanitize;

/// The process that opened a connection. It may have exited since, or have passed the connection to
/// another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// User ID of the process.
    pub uid: u32,
    /// ID of the process in our PID namespace. `None` if the process is in another PID namespace.
    pub pid: Option<i32>,
    /// Name of the program, of at most 15 bytes (`/proc/PID/comm`), if it could be read. A process
    /// may choose any name.
    pub program: Option<String>,
}

/// Names of programs that are, or contain, a kubelet.
const KUBELET_BINARIES: [&str; 6] = ["kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "hyperkube"];

impl Peer {
    /// Returns whether the process is a kubelet, judging by the name of its program.
    #[must_use]
    pub fn is_kubelet(&self) -> bool {
        self.program.as_deref().is_some_and(|program| KUBELET_BINARIES.contains(&program))
    }

    /// Returns whether probeshim itself opened the connection, as the built-in kubelet does.
    #[must_use]
    pub fn is_this_process(&self) -> bool {
        self.pid.and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id())
    }

    /// Returns whether a text refers to the process: the name of its program, its pid, or both as
    /// in `kubelet[4711]`.
    #[must_use]
    pub fn is_named(&self, text: &str) -> bool {
        let (program, pid) = match text.strip_suffix(']').and_then(|text| text.rsplit_once('[')) {
            Some((program, pid)) => (Some(program), Some(pid)),
            None => (None, None),
        };
        let is_program = |name: &str| self.program.as_deref() == Some(name);
        let is_pid = |pid: &str| self.pid.is_some_and(|known| pid.parse() == Ok(known));
        is_program(text) || is_pid(text) || (program.is_some_and(is_program) && pid.is_some_and(is_pid))
    }

    /// Reads the credentials of the peer from the kernel (`SO_PEERCRED`), and the name of its
    /// program from `/proc`.
    pub(crate) fn from_socket(stream: &UnixStream) -> Option<Self> {
        let credentials = stream.peer_cred().ok()?;
        // The kernel reports 0 for a process that is not visible in our PID namespace.
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
    fn control_characters_in_the_program_name_of_a_peer_are_escaped() {
        let peer = Peer { uid: 7, pid: Some(12), program: Some("x\u{1b}[2J\ny".to_owned()) };
        assert_eq!(peer.to_string(), r"x\u{1b}[2J\ny[12] uid 7");
        let unknown = Peer { uid: 7, pid: None, program: None };
        assert_eq!(unknown.to_string(), "? uid 7");
    }
}
