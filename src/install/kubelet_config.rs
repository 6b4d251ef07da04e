//! The configuration of a running kubelet: flags, the file of `--config`, and the files of
//! `--config-dir`, in increasing precedence: file, directory, flags
//! (`pkg/kubelet` of Kubernetes: `cmd/kubelet/app/server.go`, `loadConfigFile` and
//! `kubeletConfigFlagPrecedence`).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::paths::Paths;
use crate::regular_file::{MAX_YAML_BYTES, read_to_string};

/// Endpoint of a kubelet that configures none.
const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// Port of `/healthz` of a kubelet that configures none.
const DEFAULT_HEALTHZ_PORT: u16 = 10248;

/// Configuration of a running kubelet, as far as an installation needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KubeletConfig {
    /// Socket of the runtime.
    pub(super) endpoint: String,
    /// Origin of the endpoint: a flag, a file or the default.
    pub(super) endpoint_source: String,
    /// Socket of the image service, if it is configured on its own.
    pub(super) image_endpoint: Option<String>,
    /// Address of `/healthz`; `None` if it is disabled.
    pub(super) healthz: Option<SocketAddr>,
}

/// A configuration file of a kubelet that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the kubelet's configuration {path}: {reason}")]
pub struct KubeletConfigError {
    path: PathBuf,
    reason: String,
}

/// Fields of a `KubeletConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeletConfiguration {
    container_runtime_endpoint: Option<String>,
    image_service_endpoint: Option<String>,
    healthz_port: Option<u16>,
    healthz_bind_address: Option<IpAddr>,
}

impl KubeletConfig {
    /// Reads the configuration of a kubelet with these arguments.
    pub(super) fn read(arguments: &[String], paths: &Paths) -> Result<Self, KubeletConfigError> {
        let mut config = Self {
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            endpoint_source: "default of the kubelet".to_owned(),
            image_endpoint: None,
            healthz: None,
        };
        let mut port = DEFAULT_HEALTHZ_PORT;
        let mut address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let file = flag(arguments, "config").map(PathBuf::from);
        let dir = flag(arguments, "config-dir").map(PathBuf::from);
        let drop_ins = dir.map(|dir| drop_ins(&dir, paths)).transpose()?.unwrap_or_default();
        for path in file.into_iter().chain(drop_ins) {
            let fields = read(&path, paths)?;
            if let Some(endpoint) = fields.container_runtime_endpoint.filter(|value| !value.is_empty()) {
                config.endpoint = endpoint;
                config.endpoint_source = format!("containerRuntimeEndpoint in {}", path.display());
            }
            config.image_endpoint =
                fields.image_service_endpoint.filter(|value| !value.is_empty()).or(config.image_endpoint);
            port = fields.healthz_port.unwrap_or(port);
            address = fields.healthz_bind_address.unwrap_or(address);
        }
        if let Some(endpoint) = flag(arguments, "container-runtime-endpoint") {
            endpoint.clone_into(&mut config.endpoint);
            "--container-runtime-endpoint".clone_into(&mut config.endpoint_source);
        }
        if let Some(endpoint) = flag(arguments, "image-service-endpoint") {
            config.image_endpoint = Some(endpoint.to_owned());
        }
        port = flag(arguments, "healthz-port").and_then(|value| value.parse().ok()).unwrap_or(port);
        let flag_address = flag(arguments, "healthz-bind-address").and_then(|value| value.parse().ok());
        let address = match flag_address.unwrap_or(address) {
            any if any.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            address => address,
        };
        config.healthz = (port != 0).then_some(SocketAddr::new(address, port));
        Ok(config)
    }
}

/// Returns the value of the last flag of this name, which has precedence.
fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut rest = arguments.iter();
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
fn drop_ins(dir: &Path, paths: &Paths) -> Result<Vec<PathBuf>, KubeletConfigError> {
    let failed =
        |error: std::io::Error| KubeletConfigError { path: dir.to_owned(), reason: error.to_string() };
    let mut files = Vec::new();
    for entry in fs::read_dir(paths.at(dir)).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "conf") {
            files.push(dir.join(name));
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path, paths: &Paths) -> Result<KubeletConfiguration, KubeletConfigError> {
    let failed = |reason: String| KubeletConfigError { path: path.to_owned(), reason };
    let text = read_to_string(&paths.at(path), MAX_YAML_BYTES).map_err(|error| failed(error.to_string()))?;
    serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn flags_of_a_kubelet_have_precedence_over_its_directory_and_the_directory_over_its_file() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path());
        fs::create_dir_all(root.path().join("kubelet.d")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write(
            "config.yaml",
            "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///a.sock\nhealthzPort: 1\n",
        );
        write("kubelet.d/10.conf", "containerRuntimeEndpoint: unix:///b.sock\n");
        write("kubelet.d/20.conf", "healthzPort: 2\nimageServiceEndpoint: unix:///i.sock\n");
        write("kubelet.d/30.yaml", "containerRuntimeEndpoint: unix:///ignored.sock\n");
        let endpoint = |line: &str| KubeletConfig::read(&arguments(line), &paths).unwrap();

        let config = endpoint("kubelet");
        assert_eq!((&*config.endpoint, config.healthz), (DEFAULT_ENDPOINT, "127.0.0.1:10248".parse().ok()));
        let config = endpoint("kubelet --config /config.yaml");
        assert_eq!((&*config.endpoint, config.healthz), ("unix:///a.sock", "127.0.0.1:1".parse().ok()));
        let config = endpoint("kubelet --config=/config.yaml --config-dir=/kubelet.d");
        assert_eq!(config.endpoint_source, "containerRuntimeEndpoint in /kubelet.d/10.conf");
        assert_eq!((&*config.endpoint, config.healthz), ("unix:///b.sock", "127.0.0.1:2".parse().ok()));
        assert_eq!(config.image_endpoint.as_deref(), Some("unix:///i.sock"));
        let line = "kubelet --config=/config.yaml --container-runtime-endpoint=unix:///c.sock --healthz-port=0 \
                    --container-runtime-endpoint unix:///d.sock";
        let config = endpoint(line);
        assert_eq!((&*config.endpoint, config.healthz), ("unix:///d.sock", None));
        assert_eq!(config.endpoint_source, "--container-runtime-endpoint");
    }

    #[test]
    fn a_kubelet_configuration_that_cannot_be_read_is_named_in_the_error() {
        let root = tempfile::tempdir().unwrap();
        let read = KubeletConfig::read(&arguments("kubelet --config=/none.yaml"), &Paths::below(root.path()));
        let error = read.unwrap_err().to_string();
        assert!(error.starts_with("cannot read the kubelet's configuration /none.yaml: "), "{error}");
    }
}
