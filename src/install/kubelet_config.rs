//! The parts of a running kubelet's configuration that an installation needs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::paths::Paths;
use crate::local_kubelet::configuration::flag;
use crate::local_kubelet::{ConfigurationError, KubeletConfiguration};

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
    /// Kubeconfig of the kubelet; `None` if its command line names none.
    pub(super) kubeconfig: Option<PathBuf>,
    /// Address of `/healthz`; `None` if it is disabled.
    pub(super) healthz: Option<SocketAddr>,
}

impl KubeletConfig {
    /// Reads the configuration of a kubelet with these arguments.
    pub(super) fn read(arguments: &[String], paths: &Paths) -> Result<Self, ConfigurationError> {
        let mut config = Self {
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            endpoint_source: "default of the kubelet".to_owned(),
            image_endpoint: None,
            kubeconfig: flag(arguments, "kubeconfig").filter(|path| !path.is_empty()).map(PathBuf::from),
            healthz: None,
        };
        let mut port = DEFAULT_HEALTHZ_PORT;
        let mut address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        KubeletConfiguration::read_files(arguments, &paths.at("/"), |path, fields| {
            if let Some(endpoint) = fields.container_runtime_endpoint.filter(|value| !value.is_empty()) {
                config.endpoint = endpoint;
                config.endpoint_source = format!("containerRuntimeEndpoint in {}", path.display());
            }
            let image_endpoint = fields.image_service_endpoint.filter(|value| !value.is_empty());
            config.image_endpoint = image_endpoint.or(config.image_endpoint.take());
            port = fields.healthz_port.unwrap_or(port);
            address = fields.healthz_bind_address.unwrap_or(address);
        })?;
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

#[cfg(test)]
mod tests {
    use std::fs;

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
}
