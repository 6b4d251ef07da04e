//! The environment of the process, and the default paths that depend on it.

use std::fs::{self, DirBuilder};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{DirPath, InstanceName};
use crate::distributions::FoundContainerd;
use crate::socket::{self, SocketPath};
use crate::telemetry::traces;

/// Directory of the private directories of users without `XDG_RUNTIME_DIR`.
const TEMPORARY: &str = "/tmp";

/// Variable with the socket of the runtime, which crictl reads too.
pub(super) const RUNTIME_ENDPOINT: &str = "CONTAINER_RUNTIME_ENDPOINT";

/// Variable with the state directory, in place of `--state-dir`.
pub(crate) const STATE_DIR_VARIABLE: &str = "PROBESHIM_STATE_DIR";

/// Properties of the process and its environment on which defaults depend.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Effective user id.
    pub user: u32,
    /// Whether OpenTelemetry's environment variables name an endpoint for traces.
    pub has_collector: bool,
    /// Whether systemd passes a listening socket to the process.
    pub is_activated: bool,
    /// Directory of configuration directories.
    pub config_home: PathBuf,
    /// `$XDG_RUNTIME_DIR`, if it is a directory of this user.
    pub runtime_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME` if it is set and absolute, otherwise `$HOME/.local/state` if `$HOME` is a
    /// directory.
    pub state_home: Option<PathBuf>,
    /// `$PROBESHIM_STATE_DIR`, which clap reads as `--state-dir`.
    pub state_dir_variable: Option<DirPath>,
    /// Directory in which a private directory is created if one of the others is missing.
    pub temporary: PathBuf,
    /// `$CONTAINER_RUNTIME_ENDPOINT`, if it is not empty.
    pub runtime_endpoint: Option<String>,
    /// Socket of the containerd of a distribution, if the default socket is not there.
    pub containerd: Option<&'static str>,
    /// Whether standard output is a terminal.
    pub has_terminal: bool,
    /// Name of the instance. Each default path contains it.
    pub instance: Option<InstanceName>,
}

impl Environment {
    /// Returns the environment of this process.
    #[must_use]
    pub fn detect() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || dir("HOME").filter(|home| home.is_dir()).map(|home| home.join(".local/state"));
        Self {
            user,
            has_collector: traces::has_endpoint(),
            is_activated: socket::is_activated(),
            config_home: PathBuf::from("/etc"),
            // After `su`, the variable may still name the directory of another user.
            runtime_dir: dir("XDG_RUNTIME_DIR").filter(|path| is_dir_of(path, user)),
            state_home: dir("XDG_STATE_HOME").or_else(home),
            state_dir_variable: std::env::var(STATE_DIR_VARIABLE).ok().and_then(|path| path.parse().ok()),
            temporary: PathBuf::from(TEMPORARY),
            runtime_endpoint: std::env::var(RUNTIME_ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty()),
            containerd: FoundContainerd::find(Path::new("/")).map(|found| found.socket),
            has_terminal: io::stdout().is_terminal(),
            instance: None,
        }
    }

    /// Returns the environment of the instance with this name.
    pub(super) fn of_instance(&self, instance: Option<&InstanceName>) -> Self {
        Self { instance: instance.or(self.instance.as_ref()).cloned(), ..self.clone() }
    }

    /// Returns whether the process runs as root.
    pub(super) fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Returns the configuration file that is read if it exists.
    pub(super) fn default_config(&self) -> Option<PathBuf> {
        Some(self.config_path()).filter(|path| path.exists())
    }

    /// Returns the default path of the configuration file.
    pub(super) fn config_path(&self) -> PathBuf {
        self.config_home.join(self.dir_name()).join("config.yaml")
    }

    /// Returns the directory for state that outlives the process.
    pub(super) fn state_dir(&self) -> Result<PathBuf, String> {
        let state = match &self.state_home {
            _ if self.is_root() => PathBuf::from("/var/lib"),
            Some(state) => state.clone(),
            None => self.private_dir()?.join("state"),
        };
        Ok(state.join(self.dir_name()))
    }

    /// Returns the default socket of this name in the directory for sockets, for a process that
    /// listens on it.
    pub(super) fn default_socket(&self, name: &str) -> Result<SocketPath, String> {
        self.socket(name, Self::private_dir)
    }

    /// Returns the default socket of this name, for a process that connects to it. Creates nothing.
    pub(super) fn queried_socket(&self, name: &str) -> Result<SocketPath, String> {
        self.socket(name, Self::checked_private_dir)
    }

    fn socket(
        &self,
        name: &str,
        private_dir: impl FnOnce(&Self) -> Result<PathBuf, String>,
    ) -> Result<SocketPath, String> {
        let run = match &self.runtime_dir {
            _ if self.is_root() => PathBuf::from("/run"),
            Some(run) => run.clone(),
            None => private_dir(self)?,
        };
        SocketPath::new(&run.join(self.dir_name()).join(name))
            .map_err(|error| format!("is needed: its default {error}"))
    }

    /// Returns the name of the directory in each default path: `probeshim` or `probeshim-INSTANCE`.
    fn dir_name(&self) -> String {
        match &self.instance {
            Some(instance) => format!("probeshim-{instance}"),
            None => "probeshim".to_owned(),
        }
    }

    /// Returns the directory that takes the place of missing ones, and creates it if it does not
    /// exist.
    fn private_dir(&self) -> Result<PathBuf, String> {
        let path = self.private_path();
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(refused(&path, &format!("cannot be created: {error}")))
            }
            _ => self.checked_private_dir(),
        }
    }

    /// Returns the directory that takes the place of missing ones, which need not exist. Every user
    /// can create files beside it, so a directory of another user, a link, and a directory that
    /// others may access are refused.
    fn checked_private_dir(&self) -> Result<PathBuf, String> {
        let path = self.private_path();
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(refused(&path, &format!("cannot be read: {error}"))),
        };
        if !is_dir_of(&path, self.user) {
            return Err(refused(&path, "is not a directory of this user"));
        }
        match found.permissions().mode() & 0o777 {
            0o700 => Ok(path),
            mode => Err(refused(&path, &format!("has the mode {mode:04o}, but must have 0700"))),
        }
    }

    fn private_path(&self) -> PathBuf {
        self.temporary.join(format!("probeshim-{}", self.user))
    }
}

/// Returns the error of a private directory that cannot be used.
fn refused(path: &Path, reason: &str) -> String {
    format!("is needed: its default directory {} {reason}; set XDG_RUNTIME_DIR", path.display())
}

/// Returns whether the path is a directory, not a link to one, which this user owns.
fn is_dir_of(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an environment without any directory but a temporary one.
    fn bare(temporary: &Path) -> Environment {
        Environment {
            state_dir_variable: None,
            user: rustix::process::geteuid().as_raw(),
            has_collector: false,
            is_activated: false,
            config_home: temporary.join("etc"),
            runtime_dir: None,
            state_home: None,
            temporary: temporary.to_owned(),
            runtime_endpoint: None,
            containerd: None,
            has_terminal: false,
            instance: None,
        }
    }

    #[test]
    fn a_private_directory_takes_the_place_of_missing_ones() {
        let temporary = tempfile::tempdir().unwrap();
        let around = Environment { user: 1000, ..bare(temporary.path()) };
        let queried = around.queried_socket("admin.sock").unwrap();
        assert!(queried.as_path().starts_with(temporary.path().join("probeshim-1000/probeshim")));
        assert!(!temporary.path().join("probeshim-1000").exists(), "a query creates nothing");
        let around = bare(temporary.path());
        let private = around.private_dir().unwrap();
        assert_eq!(private, temporary.path().join(format!("probeshim-{}", around.user)));
        assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(around.private_dir(), Ok(private), "an existing one is used again");
    }

    #[test]
    fn a_private_directory_that_others_control_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let around = bare(temporary.path());
        let path = temporary.path().join(format!("probeshim-{}", around.user));
        std::os::unix::fs::symlink("/var", &path).unwrap();
        let link = around.private_dir().unwrap_err();
        assert!(link.contains("is not a directory of this user; set XDG_RUNTIME_DIR"), "{link}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        let open = around.private_dir().unwrap_err();
        assert!(open.contains("has the mode 0770, but must have 0700"), "{open}");
        let other = Environment { user: around.user + 1, ..around };
        fs::rename(&path, temporary.path().join(format!("probeshim-{}", other.user))).unwrap();
        let foreign = other.private_dir().unwrap_err();
        assert!(foreign.contains("is not a directory of this user"), "{foreign}");
    }
}
