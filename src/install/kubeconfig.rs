//! The kubeconfig of the kubelet, from whose API server probeshim reads the names of probes, and
//! the line of the configuration that names it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use serde_json::Value;

use super::finding::Finding;
use super::node::NodeKubelet;
use super::paths::{InstalledUnit, Paths};
use super::switch::InstalledFile;
use super::systemctl::{ServiceManager, property};
use crate::api_server::NodeKubeconfig;
use crate::local_kubelet::installed_kubeconfig;
use crate::probe::{alternative, config_line};
use crate::prober::EnforcementMode;
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
    /// This addition is appended to this text. The file keeps its mode.
    Append { text: String, addition: String, mode: u32 },
    /// The line is there already, as written before.
    Keep,
    /// The file sets another source.
    OtherSource,
    /// The line cannot be appended.
    Manual,
    /// The kubeconfig does not suffice, for this reason.
    Unusable(String),
    /// Probeshim would run the probes of all pods in this mode, which another setting requests.
    Enforced(EnforcementMode),
}

/// Returns the text of a configuration file that names a kubeconfig and nothing else.
pub(super) fn config_text(kubeconfig: &Path) -> String {
    format!("# Written by `probeshim install --kubelet`: names of probes.\n{}\n", config_line(kubeconfig))
}

impl KubeconfigSetting {
    /// Finds the kubeconfig of a kubelet: that of its command line, or that of the distribution.
    /// Returns `None` if there is none: such a kubelet has no API server.
    /// `enforcement` is the mode in which the service runs probes.
    pub(super) fn find(kubelet: &NodeKubelet, paths: &Paths, enforcement: EnforcementMode) -> Option<Self> {
        let of_flag = kubelet.config.kubeconfig.as_ref();
        // A unit of systemd has the root directory as its working directory.
        let of_flag = of_flag.map(|path| ("--kubeconfig of the kubelet", Path::new("/").join(path)));
        let of_flag = of_flag.filter(|(_, path)| paths.at(path).is_file());
        let (origin, kubeconfig) = of_flag.or_else(|| installed_kubeconfig(&paths.at("/")))?;
        let change = match ConfigChange::plan(&paths.at(Paths::config_file()), &kubeconfig) {
            change @ (ConfigChange::Write | ConfigChange::Append { .. }) => {
                let unusable = NodeKubeconfig::read(&paths.at(&kubeconfig)).err();
                let enforced = (enforcement != EnforcementMode::Off).then_some(enforcement);
                let unusable = unusable.map(ConfigChange::Unusable);
                unusable.or(enforced.map(ConfigChange::Enforced)).unwrap_or(change)
            }
            change => change,
        };
        Some(Self { kubeconfig, origin, change })
    }

    /// Returns the configuration file as it must be written, with its mode; `None` if it stays.
    pub(super) fn file(&self) -> Option<(InstalledFile, u32)> {
        let (text, mode) = match &self.change {
            ConfigChange::Write => (config_text(&self.kubeconfig), CONFIG_MODE),
            ConfigChange::Append { text, addition, mode } => (format!("{text}{addition}"), *mode),
            _ => return None,
        };
        Some((InstalledFile { path: Paths::config_file(), text }, mode))
    }

    /// Returns the kubeconfig if the whole configuration file is that of this installation.
    pub(super) fn written(&self) -> Option<&Path> {
        (self.change == ConfigChange::Write).then_some(&*self.kubeconfig)
    }

    /// Returns the text that is appended to a configuration file which exists.
    pub(super) fn addition(&self) -> Option<&str> {
        match &self.change {
            ConfigChange::Append { addition, .. } => Some(addition),
            _ => None,
        }
    }

    /// Returns the finding about the setting.
    pub(super) fn finding(&self) -> Finding {
        let (path, file, line) =
            (self.kubeconfig.display(), Paths::config_file(), config_line(&self.kubeconfig));
        let (file, origin) = (file.display(), self.origin);
        match &self.change {
            ConfigChange::Write | ConfigChange::Append { .. } => {
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
            ConfigChange::Unusable(problem) => Finding::warning(
                CHECK,
                format!("the kubeconfig of {origin} does not suffice: {problem}"),
                alternative(&Paths::config_file()),
            ),
            ConfigChange::Enforced(mode) => Finding::warning(
                CHECK,
                format!(
                    "the line for the names of all pods is not added to {file}, because enforce is {}: probeshim would \
                     then run the probes of all pods of this node{}",
                    mode.name(),
                    if *mode == EnforcementMode::DryRun { "" } else { ", and kill or restart containers" },
                ),
                format!("if that is intended, add this line: {line}"),
            ),
        }
    }
}

impl ConfigChange {
    fn plan(file: &Path, kubeconfig: &Path) -> Self {
        let parsed = |text: &str| serde_saphyr::from_str::<Value>(text).ok();
        let Some(name) = kubeconfig.to_str() else { return Self::Manual };
        let setting = serde_json::json!({"kubeconfig": name});
        let Ok(metadata) = fs::symlink_metadata(file) else {
            let is_valid = parsed(&config_text(kubeconfig)) == Some(serde_json::json!({"kubelet": setting}));
            return if is_valid { Self::Write } else { Self::Manual };
        };
        let Ok(text) = read_to_string(file, MAX_YAML_BYTES) else { return Self::Manual };
        let before = parsed(&text);
        let source = before.as_ref().and_then(|before| before.get("kubelet"));
        if let Some(source) = source {
            let is_ours = source.get("kubeconfig").and_then(Value::as_str).map(Path::new) == Some(kubeconfig);
            return if is_ours { Self::Keep } else { Self::OtherSource };
        }
        let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let addition = format!("{separator}{}\n", config_line(kubeconfig));
        // An empty file sets nothing, like an object without fields.
        let mut expected = before.filter(|before| !before.is_null()).unwrap_or_else(|| serde_json::json!({}));
        if !expected.is_object() || !metadata.is_file() {
            return Self::Manual;
        }
        expected["kubelet"] = setting;
        if parsed(&format!("{text}{addition}")) != Some(expected) {
            return Self::Manual;
        }
        Self::Append { text, addition, mode: metadata.permissions().mode() & 0o777 }
    }
}

/// Returns the text of a configuration file without an addition of an installation; `None` if the
/// file does not have it, or has another text in its place.
pub(super) fn without_addition(text: &str, addition: &str) -> Option<String> {
    if let Some(before) = text.strip_suffix(addition) {
        return Some(before.to_owned());
    }
    // Other lines were added later.
    let line = addition.trim_start_matches('\n');
    let lines = text.split_inclusive('\n');
    let is_once = lines.clone().filter(|other| *other == line).count() == 1;
    is_once.then(|| lines.filter(|other| *other != line).collect())
}

/// Returns the mode in which the service runs probes: that of the command line of its unit, which
/// an administrator may have changed, or else `configured`, that of the configuration file.
pub(super) fn service_enforcement(
    manager: &dyn ServiceManager,
    configured: EnforcementMode,
) -> EnforcementMode {
    let command = property(manager, InstalledUnit::Service.name(), "ExecStart").unwrap_or_default();
    let mut arguments = command.split_whitespace();
    let mut mode = configured;
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--enforce") {
            Some("") => arguments.next(),
            Some(value) => value.strip_prefix('='),
            None => None,
        };
        mode = value.and_then(|value| EnforcementMode::from_str(value, false).ok()).unwrap_or(mode);
    }
    mode
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
        let appended = |text: &str| {
            let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            let addition = format!("{separator}{line}");
            ConfigChange::Append { text: text.to_owned(), addition, mode: 0o600 }
        };
        assert_eq!(planned(None), ConfigChange::Write);
        assert_eq!(planned(Some("")), appended(""));
        assert_eq!(planned(Some("# mine\nenforce: dry-run")), appended("# mine\nenforce: dry-run"));
        assert_eq!(planned(Some(line)), ConfigChange::Keep);
        assert_eq!(planned(Some("kubelet: {url: 'http://127.0.0.1:10255'}")), ConfigChange::OtherSource);
        for text in ["{enforce: dry-run}\n", "- a\n", "a: [\n", "text: |\n  a\n ---\n"] {
            assert_eq!(planned(Some(text)), ConfigChange::Manual, "{text}");
        }
    }

    #[test]
    fn an_addition_is_removed_if_it_is_unchanged() {
        let addition = "\nkubelet: {kubeconfig: /a}\n";
        assert_eq!(without_addition("b: c\nkubelet: {kubeconfig: /a}\n", addition).as_deref(), Some("b: c"));
        let later = without_addition("b: c\nkubelet: {kubeconfig: /a}\nd: e\n", addition);
        assert_eq!(later.as_deref(), Some("b: c\nd: e\n"));
        for text in ["b: c", "kubelet: {kubeconfig: /a, nodeName: b}\n", "kubelet: {kubeconfig: /a} # mine\n"]
        {
            assert_eq!(without_addition(text, addition), None, "{text}");
        }
    }

    #[test]
    fn the_written_configuration_is_valid() {
        let text = config_text(Path::new("/etc/kubernetes/kubelet.conf"));
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(value, serde_json::json!({"kubelet": {"kubeconfig": "/etc/kubernetes/kubelet.conf"}}));
    }
}
