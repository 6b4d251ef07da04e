//! What the process knows of its surroundings, and the places that follow from it.

use std::path::{Path, PathBuf};

use crate::socket::{self, SocketPath};
use crate::telemetry::traces;

/// The configuration file that counts if it is there.
const CONFIG: &str = "/etc/probeshim/config.yaml";

/// What the process knows of its surroundings that defaults depend on.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Whether it runs as root.
    pub is_root: bool,
    /// Whether OpenTelemetry's variables tell where traces go.
    pub has_collector: bool,
    /// Whether systemd passes a socket to it.
    pub is_activated: bool,
    /// The configuration file that counts if it is there.
    pub config: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`, where it is set and absolute.
    pub runtime_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, where it is set and absolute, or else `.local/state` in `$HOME`.
    pub state_home: Option<PathBuf>,
}

impl Environment {
    /// Those of this process.
    #[must_use]
    pub fn detect() -> Self {
        let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            is_root: rustix::process::geteuid().is_root(),
            has_collector: traces::has_endpoint(),
            is_activated: socket::is_activated(),
            config: Some(PathBuf::from(CONFIG)),
            runtime_dir: dir("XDG_RUNTIME_DIR"),
            state_home: dir("XDG_STATE_HOME").or_else(|| Some(dir("HOME")?.join(".local/state"))),
        }
    }

    /// The folder for sockets. `None` where there is no good place.
    fn run_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            Some(Path::new("/run/probeshim").to_owned())
        } else {
            self.runtime_dir.as_ref().map(|dir| dir.join("probeshim"))
        }
    }

    /// The folder for what outlives the process. `None` where there is no good place.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            Some(Path::new("/var/lib/probeshim").to_owned())
        } else {
            self.state_home.as_ref().map(|dir| dir.join("probeshim"))
        }
    }

    /// The same, where it cannot be done without.
    pub(super) fn require_state_dir(&self) -> Result<PathBuf, String> {
        self.state_dir()
            .ok_or_else(|| "is needed: not root, and neither XDG_STATE_HOME nor HOME is set".to_owned())
    }

    /// The socket of this name, where nothing else is told.
    pub(super) fn default_socket(&self, name: &str) -> Result<SocketPath, String> {
        let dir = self.run_dir().ok_or("is needed: not root, and XDG_RUNTIME_DIR is not set")?;
        SocketPath::new(&dir.join(name)).map_err(|error| format!("is needed: its default {error}"))
    }
}
