//! The configuration of a kubelet: flags, the file of `--config`, and the files of `--config-dir`,
//! in increasing precedence: file, directory, flags (`cmd/kubelet/app/server.go` of Kubernetes:
//! `loadConfigFile` and `kubeletConfigFlagPrecedence`).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::below;
use crate::regular_file::{MAX_YAML_BYTES, read_to_string};

/// Read-only port of a kubelet without a configuration file (`applyLegacyDefaults` of
/// `cmd/kubelet/app/options/options.go`). With a file the default is none.
const LEGACY_READ_ONLY_PORT: u16 = 10255;

/// A configuration file of a kubelet that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the kubelet's configuration {path}: {reason}")]
pub struct ConfigurationError {
    path: PathBuf,
    reason: String,
}

/// Fields of a `KubeletConfiguration`. A field that is not set is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct KubeletConfiguration {
    /// Socket of the runtime.
    pub(crate) container_runtime_endpoint: Option<String>,
    /// Socket of the image service, if it is configured on its own.
    pub(crate) image_service_endpoint: Option<String>,
    /// Port of `/healthz`.
    pub(crate) healthz_port: Option<u16>,
    /// Address of `/healthz`.
    pub(crate) healthz_bind_address: Option<IpAddr>,
    /// Directory or file of static pods.
    pub(crate) static_pod_path: Option<PathBuf>,
    /// Port that serves `/pods` without authentication; 0 for none.
    pub(crate) read_only_port: Option<u16>,
    /// Address of that port.
    pub(crate) address: Option<IpAddr>,
}

impl KubeletConfiguration {
    /// Reads the files of a kubelet with these arguments, and passes each with its content to
    /// `take`, in the order of precedence. `root` is the root directory of the kubelet.
    pub(crate) fn read_files(
        arguments: &[String],
        root: &Path,
        mut take: impl FnMut(&Path, Self),
    ) -> Result<(), ConfigurationError> {
        let file = flag(arguments, "config").map(PathBuf::from);
        let dir = flag(arguments, "config-dir").map(PathBuf::from);
        let drop_ins = dir.map(|dir| drop_ins(&dir, root)).transpose()?.unwrap_or_default();
        for path in file.into_iter().chain(drop_ins) {
            let fields = Self::read_file(&path, root)?;
            take(&path, fields);
        }
        Ok(())
    }

    /// Returns the configuration by which a kubelet with these arguments serves its pods. Paths are
    /// those of the kubelet.
    pub(crate) fn of_pods(arguments: &[String], root: &Path) -> Result<Self, ConfigurationError> {
        let (mut merged, mut has_file) = (Self::default(), false);
        Self::read_files(arguments, root, |_, fields| {
            has_file = true;
            let text = |text: Option<String>| text.filter(|text| !text.is_empty());
            let path = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
            merged = Self {
                container_runtime_endpoint: text(fields.container_runtime_endpoint)
                    .or(merged.container_runtime_endpoint.take()),
                static_pod_path: path(fields.static_pod_path).or(merged.static_pod_path.take()),
                read_only_port: fields.read_only_port.or(merged.read_only_port),
                address: fields.address.or(merged.address),
                ..Self::default()
            };
        })?;
        let flag = |name| flag(arguments, name).filter(|value| !value.is_empty());
        let default_port = if has_file { 0 } else { LEGACY_READ_ONLY_PORT };
        let flag_port = flag("read-only-port").and_then(|port| port.parse().ok());
        let flag_address = flag("address").and_then(|address| address.parse().ok());
        Ok(Self {
            container_runtime_endpoint: flag("container-runtime-endpoint")
                .map(str::to_owned)
                .or(merged.container_runtime_endpoint),
            static_pod_path: flag("pod-manifest-path").map(PathBuf::from).or(merged.static_pod_path),
            read_only_port: flag_port.or(merged.read_only_port).or(Some(default_port)),
            address: flag_address.or(merged.address),
            ..Self::default()
        })
    }

    /// Returns the address at which a process of this node reaches the read-only port.
    pub(crate) fn read_only_address(&self) -> IpAddr {
        match self.address {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(IpAddr::V4(address)) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            // A listener at all IPv6 addresses need not accept IPv4.
            Some(IpAddr::V6(address)) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            Some(address) => address,
        }
    }

    fn read_file(path: &Path, root: &Path) -> Result<Self, ConfigurationError> {
        let failed = |reason: String| ConfigurationError { path: path.to_owned(), reason };
        let text = read_to_string(&below(root, path), MAX_YAML_BYTES);
        let text = text.map_err(|error| failed(error.to_string()))?;
        serde_saphyr::from_str(&text).map_err(|error| failed(error.without_snippet().to_string()))
    }
}

/// Returns the value of the last flag of this name, which has precedence. Flags end at `--`.
pub(crate) fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut rest = arguments.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = rest.next() {
        let Some(flag) = argument.strip_prefix("--").and_then(|flag| flag.strip_prefix(name)) else {
            continue;
        };
        if let Some(value) = flag.strip_prefix('=') {
            found = Some(value);
        } else if flag.is_empty() {
            found = rest.next().map(String::as_str);
        }
    }
    found
}

/// Returns the files of `--config-dir`, in the order in which the kubelet merges them.
fn drop_ins(dir: &Path, root: &Path) -> Result<Vec<PathBuf>, ConfigurationError> {
    let failed =
        |error: std::io::Error| ConfigurationError { path: dir.to_owned(), reason: error.to_string() };
    let mut files = Vec::new();
    for entry in fs::read_dir(below(root, dir)).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "conf") {
            files.push(dir.join(name));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pods(line: &str, root: &Path) -> KubeletConfiguration {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        KubeletConfiguration::of_pods(&arguments, root).unwrap()
    }

    #[test]
    fn static_pods_and_read_only_port_come_from_flags_directory_and_file_in_this_order() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("kubelet.d")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("config.yaml", "staticPodPath: /a\nreadOnlyPort: 1\naddress: 0.0.0.0\n");
        write("kubelet.d/10.conf", "staticPodPath: /b\naddress: 192.0.2.1\n");
        let paths = |line: &str| {
            let config = of_pods(line, root.path());
            let path = config.static_pod_path.clone().map(|path| path.display().to_string());
            (path, config.read_only_port, config.read_only_address().to_string())
        };
        let expected =
            |path: &str, port, address: &str| (Some(path.to_owned()), Some(port), address.to_owned());
        assert_eq!(paths("kubelet"), (None, Some(LEGACY_READ_ONLY_PORT), "127.0.0.1".to_owned()));
        assert_eq!(paths("kubelet --config /config.yaml"), expected("/a", 1, "127.0.0.1"));
        let with_dir = "kubelet --config=/config.yaml --config-dir=/kubelet.d";
        assert_eq!(paths(with_dir), expected("/b", 1, "192.0.2.1"));
        let with_flags = format!("{with_dir} --pod-manifest-path=/c --read-only-port=0");
        assert_eq!(paths(&with_flags), expected("/c", 0, "192.0.2.1"));
        let six = format!("{with_dir} --address=::");
        assert_eq!(paths(&six), expected("/b", 1, "::1"), "it need not accept IPv4");
    }

    #[test]
    fn a_kubelet_with_a_configuration_file_has_no_read_only_port_unless_the_file_names_one() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("config.yaml"), "kind: KubeletConfiguration\n").unwrap();
        assert_eq!(of_pods("kubelet --config=/config.yaml", root.path()).read_only_port, Some(0));
    }

    #[test]
    fn a_kubelet_configuration_that_cannot_be_read_is_named_in_the_error() {
        let root = tempfile::tempdir().unwrap();
        let arguments = ["kubelet", "--config=/none.yaml"].map(str::to_owned);
        let error = KubeletConfiguration::of_pods(&arguments, root.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the kubelet's configuration /none.yaml: "), "{error}");
    }
}
