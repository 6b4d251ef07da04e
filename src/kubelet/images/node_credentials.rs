//! Registry credentials of the node, in the files of Docker.

use std::env;
use std::path::{Path, PathBuf};

use super::keyring::TrackedCredential;
use crate::manifest::docker_config::{read_config_json, read_dockercfg};
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};

/// Directories in which the node's credentials are looked up.
#[derive(Clone, Debug)]
pub(super) struct NodeCredentials {
    /// Directories of a `config.json`.
    config_json_dirs: Vec<PathBuf>,
    /// Directories of a `.dockercfg`.
    dockercfg_dirs: Vec<PathBuf>,
}

impl NodeCredentials {
    /// Creates the search paths of the kubelet, with the state directory in place of the kubelet's
    /// root directory (kubelet: `pkg/credentialprovider/config.go`:
    /// `DefaultDockerConfigJSONPaths`, `DefaultDockercfgPaths`). The working directory is left out:
    /// that of `play` often is a project, whose `config.json` has another purpose.
    pub(super) fn new(state_dir: &Path) -> Self {
        let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
        let state_dir = state_dir.to_owned();
        Self {
            config_json_dirs: vec![state_dir.clone(), home.join(".docker"), PathBuf::from("/.docker")],
            dockercfg_dirs: vec![state_dir, home, PathBuf::from("/")],
        }
    }

    /// Reads the first `config.json` that can be read or, without one, the first `.dockercfg`
    /// (kubelet: `pkg/credentialprovider/config.go`: `ReadDockerConfigFile`).
    pub(super) fn read(&self) -> Vec<TrackedCredential> {
        let found = find(&self.config_json_dirs, "config.json", read_config_json)
            .or_else(|| find(&self.dockercfg_dirs, ".dockercfg", read_dockercfg));
        let of_node = |credential| TrackedCredential { credential, source: None };
        found.into_iter().flatten().map(of_node).collect()
    }
}

fn find<T, E>(dirs: &[PathBuf], name: &str, parse: impl Fn(&[u8]) -> Result<T, E>) -> Option<T> {
    dirs.iter().find_map(|dir| {
        let content = read_to_string(&dir.join(name), MAX_SMALL_FILE_BYTES).ok()?;
        parse(content.as_bytes()).ok()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn credentials_of_the_node_come_from_the_first_readable_docker_file() {
        let dir = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = ["a", "b", "c"].iter().map(|name| dir.path().join(name)).collect();
        for dir in &dirs {
            fs::create_dir(dir).unwrap();
        }
        let node = NodeCredentials { config_json_dirs: dirs.clone(), dockercfg_dirs: dirs.clone() };
        let registries =
            || -> Vec<String> { node.read().into_iter().map(|it| it.credential.registry).collect() };
        assert_eq!(registries(), [""; 0]);
        fs::write(dirs[0].join(".dockercfg"), r#"{"old.test": {"auth": "dXNlcjpwYXNz"}}"#).unwrap();
        assert_eq!(registries(), ["old.test"]);
        fs::write(dirs[1].join("config.json"), "not JSON").unwrap();
        fs::write(dirs[2].join("config.json"), r#"{"auths": {"new.test": {"auth": "dXNlcjpwYXNz"}}}"#)
            .unwrap();
        assert_eq!(registries(), ["new.test"]);
        assert!(node.read().iter().all(|it| it.source.is_none()));
    }
}
