//! Commands that are run in containers.

use std::env;
use std::fs;
use std::io;
use std::path::Path;

use super::Engine;
use crate::cri::v1::KeyValue;
use crate::gofmt::system_error;
use crate::procrun::container::ProcrunContainer;
use crate::procrun::error::CriError;
use crate::procrun::lookpath;
use crate::procrun::monitor::Command;

/// Value of `PATH` in containers if procrun itself has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Engine {
    /// Returns the command for `args`, with the container's environment and working directory.
    /// Creates the working directory if it is missing.
    pub(super) fn command(
        &self,
        container: &ProcrunContainer,
        args: Vec<String>,
    ) -> Result<Command, CriError> {
        let config = &container.config;
        if !config.working_dir.is_empty() && !Path::new(&config.working_dir).is_absolute() {
            return Err(CriError::unknown("Cwd must be an absolute path"));
        }
        let dir = lookpath::working_dir(&container.dir, &config.working_dir);
        create_dirs(&container.dir, &dir).map_err(|error| {
            CriError::unknown(format!("mkdir {}: {}", dir.display(), system_error(&error)))
        })?;
        let envs = self.environment(container);
        let path = envs.iter().find(|env| env.key == "PATH").map(|env| String::from_utf8_lossy(&env.value));
        let name = args.first().ok_or_else(|| CriError::unknown("args must not be empty"))?;
        let program = lookpath::look_path(name, &dir, &path.unwrap_or_default())
            .map_err(|error| error.context("unable to start container process"))?;
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| CriError::unknown("a path is not valid UTF-8"))
        };
        Ok(Command { program: text(&program)?, args, envs, directory: text(&dir)? })
    }

    /// Returns the environment of a container: the variables of its config, and `PATH`, `HOME` and
    /// `HOSTNAME` unless the config has them.
    fn environment(&self, container: &ProcrunContainer) -> Vec<KeyValue> {
        let path = env::var("PATH").unwrap_or_else(|_| PATH.to_owned());
        let of_pod =
            self.sandboxes.get(&container.sandbox).ok().map(|sandbox| sandbox.config.hostname.clone());
        let hostname = of_pod
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        let home = container.dir.display().to_string();
        let given = &container.config.envs;
        let base = [("PATH", path), ("HOME", home), ("HOSTNAME", hostname)];
        base.into_iter()
            .filter(|(key, _)| !given.iter().any(|env| env.key == *key))
            .map(|(key, value)| KeyValue { key: key.to_owned(), value: value.into_bytes() })
            .chain(given.iter().cloned())
            .collect()
    }
}

/// Creates a directory and its missing parents below `root`. Fails if `root` is missing, because
/// the container was removed.
fn create_dirs(root: &Path, dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|above| *above != root).filter(|above| !above.is_dir()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    root.metadata().map(drop)
}
