//! The fixed paths of an installation.

use std::path::{Path, PathBuf};

/// Directory in which administrators keep units of systemd.
const UNIT_DIR: &str = "/etc/systemd/system";

/// The paths of an installation, below the root directory of a node. Tests have another root.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
}

/// The units of systemd that an installation writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstalledUnit {
    /// Listens for clients, also while probeshim does not run.
    Socket,
    /// Runs probeshim.
    Service,
    /// Points the kubelet at the runtime's own socket.
    Bypass,
    /// Starts the bypass unless the change is confirmed.
    Revert,
}

impl InstalledUnit {
    /// All units, in the order in which they are written.
    pub const ALL: [Self; 4] = [Self::Socket, Self::Service, Self::Bypass, Self::Revert];

    /// Returns the name of the unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Socket => "probeshim.socket",
            Self::Service => "probeshim.service",
            Self::Bypass => "probeshim-bypass.service",
            Self::Revert => "probeshim-revert.timer",
        }
    }
}

impl Paths {
    /// Returns the paths of this node.
    #[must_use]
    pub fn of_node() -> Self {
        Self::below("/")
    }

    /// Returns the paths below a root directory.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the place of an absolute path of the node.
    #[must_use]
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The installed program.
    #[must_use]
    pub fn program() -> &'static Path {
        Path::new("/usr/local/bin/probeshim")
    }

    /// The record of the installation, by which it is undone.
    #[must_use]
    pub fn record() -> &'static Path {
        Path::new("/var/lib/probeshim/install.json")
    }

    /// The state directory of the installed probeshim.
    #[must_use]
    pub fn state() -> &'static Path {
        Path::new("/var/lib/probeshim")
    }

    /// The file that excludes other changes of the installation. It is in memory.
    #[must_use]
    pub fn lock() -> &'static Path {
        Path::new("/run/probeshim-install.lock")
    }

    /// The configuration directory of the installed probeshim.
    #[must_use]
    pub fn config() -> &'static Path {
        Path::new("/etc/probeshim")
    }

    /// The configuration file of the installed probeshim.
    #[must_use]
    pub fn config_file() -> PathBuf {
        Self::config().join("config.yaml")
    }

    /// The file of a unit.
    #[must_use]
    pub fn unit(unit: InstalledUnit) -> PathBuf {
        Path::new(UNIT_DIR).join(unit.name())
    }

    /// The link that enables a unit; `None` if the unit is only started by others.
    #[must_use]
    pub fn enabled_unit(unit: InstalledUnit) -> Option<PathBuf> {
        let target = match unit {
            InstalledUnit::Socket => "sockets.target",
            InstalledUnit::Service => "multi-user.target",
            InstalledUnit::Revert => "timers.target",
            InstalledUnit::Bypass => return None,
        };
        Some(Path::new(UNIT_DIR).join(format!("{target}.wants")).join(unit.name()))
    }

    /// The drop-in of the kubelet's unit. Its name sorts after those of other drop-ins.
    #[must_use]
    pub fn kubelet_drop_in(unit: &str) -> PathBuf {
        Path::new(UNIT_DIR).join(format!("{unit}.d")).join("zz-probeshim.conf")
    }

    /// The environment file of the kubelet's drop-in.
    #[must_use]
    pub fn kubelet_environment(unit: &str) -> PathBuf {
        Path::new(UNIT_DIR).join(format!("{unit}.d")).join("zz-probeshim.env")
    }

    /// The name that a file of a kubelet's change gets when the change is reverted. systemd and k3s
    /// do not read files with this name.
    #[must_use]
    pub fn reverted(file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push(".reverted");
        name.into()
    }

    /// The configuration file of k3s or RKE2, whose unit has this name.
    #[must_use]
    pub fn rancher_config(unit: &str) -> &'static Path {
        Path::new(if unit.starts_with("rke2") {
            "/etc/rancher/rke2/config.yaml.d/zz-probeshim.yaml"
        } else {
            "/etc/rancher/k3s/config.yaml.d/zz-probeshim.yaml"
        })
    }
}
