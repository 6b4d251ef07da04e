//! Who is at the other end of a connection, as the kernel tells.

use std::fmt;

use tokio::net::UnixStream;

/// The process that opened a connection. It may be gone by now, or have passed the connection on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    uid: u32,
    pid: Option<i32>,
    program: Option<String>,
}

impl Peer {
    /// Asks the kernel (`SO_PEERCRED`) and, for the program's name, `/proc`.
    pub(super) fn of(stream: &UnixStream) -> Option<Self> {
        let credentials = stream.peer_cred().ok()?;
        let pid = credentials.pid();
        let program = pid
            .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok())
            .map(|name| name.trim_end().to_owned());
        Some(Self { uid: credentials.uid(), pid, program })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program.as_deref().unwrap_or("?"))?;
        if let Some(pid) = self.pid {
            write!(f, "[{pid}]")?;
        }
        write!(f, " uid {}", self.uid)
    }
}
