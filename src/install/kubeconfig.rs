//! The kubeconfig of the kubelet, from whose API server probeshim reads the names of probes, and
//! the line of the configuration that names it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::finding::Finding;
use super::node::NodeKubelet;
use super::paths::Paths;
use super::switch::InstalledFile;
use crate::local_kubelet::installed_kubeconfig;
use crate::probe::config_line;
use crate::regular_file::{MAX_YAML_BYTES, read_to_string};

/// Name of the finding.
const CHECK: &str = "names";

/// Mode of a configuration file that is written.
const CONFIG_MODE: u32 = 0o644;

/// The setting of the kubeconfig in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KubeconfigSetting {
    /// The kubeconfig.
    kubeconfig: PathBuf,
    /// Origin of the path: the kubelet's flag, or a distribution.
    origin: &'static str,
    /// Change of the configuration file.
    change: ConfigChange,
}

/// Change of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ConfigChange {
    /// It is written, because it does not exist.
    Write,
    /// The line is appended to this text. The file keeps its mode.
    Append(String, u32),
    /// The line is there already, as written before.
    Keep,
    /// The file sets another source.
    OtherSource,
    /// The line cannot be appended.
    Manual,
}

/// Returns the text of a configuration file that names a kubeconfig and nothing else.
pub(super) fn config_text(kubeconfig: &Path) -> String {
    format!("# Written by `probeshim install --kubelet`: names of probes.\n{}\n", config_line(kubeconfig))
}

impl KubeconfigSetting {
    /// Finds the kubeconfig of a kubelet: that of its command line, or that of the distribution.
    /// Returns `None` if there is none: such a kubelet has no API server.
    pub(super) fn find(kubelet: &NodeKubelet, paths: &Paths) -> Option<Self> {
        let of_flag = kubelet.config.kubeconfig.clone().map(|path| ("--kubeconfig of the kubelet", path));
        let of_flag = of_flag.filter(|(_, path)| paths.at(path).is_file());
        let (origin, kubeconfig) = of_flag.or_else(|| installed_kubeconfig(&paths.at("/")))?;
        let change = ConfigChange::plan(&paths.at(Paths::config_file()), &kubeconfig);
        Some(Self { kubeconfig, origin, change })
    }

    /// Returns the configuration file as it must be written, with its mode; `None` if it stays.
    pub(super) fn file(&self) -> Option<(InstalledFile, u32)> {
        let (text, mode) = match &self.change {
            ConfigChange::Write => (config_text(&self.kubeconfig), CONFIG_MODE),
            ConfigChange::Append(text, mode) => (text.clone(), *mode),
            ConfigChange::Keep | ConfigChange::OtherSource | ConfigChange::Manual => return None,
        };
        Some((InstalledFile { path: Paths::config_file(), text }, mode))
    }

    /// Returns the kubeconfig if the whole configuration file is that of this installation.
    pub(super) fn written(&self) -> Option<&Path> {
        (self.change == ConfigChange::Write).then_some(&*self.kubeconfig)
    }

    /// Returns the finding about the setting.
    pub(super) fn finding(&self) -> Finding {
        let (path, file, line) =
            (self.kubeconfig.display(), Paths::config_file(), config_line(&self.kubeconfig));
        let (file, origin) = (file.display(), self.origin);
        match &self.change {
            ConfigChange::Write | ConfigChange::Append(..) => {
                Finding::ok(CHECK, format!("from the API server of {path} ({origin}): `{line}` in {file}"))
            }
            ConfigChange::Keep => {
                Finding::ok(CHECK, format!("from the API server of {path} ({origin}), as {file} says"))
            }
            ConfigChange::OtherSource => {
                Finding::ok(CHECK, format!("{file} has a source, which stays as it is"))
            }
            ConfigChange::Manual => Finding::warning(
                CHECK,
                format!(
                    "the kubeconfig {path} ({origin}) cannot be set in {file}, which is not a plain list of fields"
                ),
                format!("add this line: {line}"),
            ),
        }
    }
}

impl ConfigChange {
    fn plan(file: &Path, kubeconfig: &Path) -> Self {
        let Ok(metadata) = fs::symlink_metadata(file) else { return Self::Write };
        let Ok(text) = read_to_string(file, MAX_YAML_BYTES) else { return Self::Manual };
        let parsed = |text: &str| serde_saphyr::from_str::<Value>(text).ok();
        let before = parsed(&text);
        let source = before.as_ref().and_then(|before| before.get("kubelet"));
        if let Some(source) = source {
            let is_ours = source.get("kubeconfig").and_then(Value::as_str).map(Path::new) == Some(kubeconfig);
            return if is_ours { Self::Keep } else { Self::OtherSource };
        }
        let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let appended = format!("{text}{separator}{}\n", config_line(kubeconfig));
        // An empty file sets nothing, like an object without fields.
        let mut expected = before.filter(|before| !before.is_null()).unwrap_or_else(|| serde_json::json!({}));
        if !expected.is_object() || !metadata.is_file() {
            return Self::Manual;
        }
        expected["kubelet"] = serde_json::json!({"kubeconfig": kubeconfig});
        if parsed(&appended) != Some(expected) {
            return Self::Manual;
        }
        Self::Append(appended, metadata.permissions().mode() & 0o777)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(text: Option<&str>) -> ConfigChange {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.yaml");
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        ConfigChange::plan(&file, Path::new("/etc/kubernetes/kubelet.conf"))
    }

    #[test]
    fn the_line_is_added_to_a_configuration_without_a_source_and_nothing_else_changes() {
        let line = "kubelet: {kubeconfig: /etc/kubernetes/kubelet.conf}\n";
        let appended = |text: &str| ConfigChange::Append(format!("{text}{line}"), 0o600);
        assert_eq!(planned(None), ConfigChange::Write);
        assert_eq!(planned(Some("")), appended(""));
        assert_eq!(planned(Some("# mine\nenforce: dry-run")), appended("# mine\nenforce: dry-run\n"));
        assert_eq!(planned(Some(line)), ConfigChange::Keep);
        assert_eq!(planned(Some("kubelet: {url: 'http://127.0.0.1:10255'}")), ConfigChange::OtherSource);
        for text in ["{enforce: dry-run}\n", "- a\n", "a: [\n", "text: |\n  a\n ---\n"] {
            assert_eq!(planned(Some(text)), ConfigChange::Manual, "{text}");
        }
    }

    #[test]
    fn the_written_configuration_is_valid() {
        let text = config_text(Path::new("/etc/kubernetes/kubelet.conf"));
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(value, serde_json::json!({"kubelet": {"kubeconfig": "/etc/kubernetes/kubelet.conf"}}));
    }
}
