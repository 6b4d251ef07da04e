//! The environment of the process, and the default paths that depend on it.

use std::path::{Path, PathBuf};

use crate::socket::{self, SocketPath};
use crate::telemetry::traces;

/// Path of the configuration file that is read if it exists.
const CONFIG: &str = "/etc/probeshim/config.yaml";

/// Properties of the process and its environment on which defaults depend.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Whether the process runs as root.
    pub is_root: bool,
    /// Whether OpenTelemetry's environment variables name an endpoint for traces.
    pub has_collector: bool,
    /// Whether systemd passes a listening socket to the process.
    pub is_activated: bool,
    /// Path of the configuration file that is read if it exists.
    pub config: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`, if it is set and absolute.
    pub runtime_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME` if it is set and absolute, otherwise `$HOME/.local/state`.
    pub state_home: Option<PathBuf>,
}

impl Environment {
    /// Returns the environment of this process.
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

    /// Returns the directory for sockets; `None` if there is no default.
    fn run_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            Some(Path::new("/run/probeshim").to_owned())
        } else {
            self.runtime_dir.as_ref().map(|dir| dir.join("probeshim"))
        }
    }

    /// Returns the directory for state that outlives the process; `None` if there is no default.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            Some(Path::new("/var/lib/probeshim").to_owned())
        } else {
            self.state_home.as_ref().map(|dir| dir.join("probeshim"))
        }
    }

    /// Returns the directory for state that outlives the process, or an error if there is no
    /// default.
    pub(super) fn require_state_dir(&self) -> Result<PathBuf, String> {
        self.state_dir()
            .ok_or_else(|| "is needed: not root, and neither XDG_STATE_HOME nor HOME is set".to_owned())
    }

    /// Returns the default socket of this name in the directory for sockets.
    pub(super) fn default_socket(&self, name: &str) -> Result<SocketPath, String> {
        let dir = self.run_dir().ok_or("is needed: not root, and XDG_RUNTIME_DIR is not set")?;
        SocketPath::new(&dir.join(name)).map_err(|error| format!("is needed: its default {error}"))
    }
}
