//! Labels of this node (kubelet: `kubelet_node_status.go`: `initialNode`).

use super::NodeInfo;
use crate::manifest::pod::StringMap;

impl NodeInfo {
    /// Returns the labels that the kubelet gives to its node.
    pub(in crate::kubelet) fn labels(&self) -> StringMap {
        let arch = architecture(std::env::consts::ARCH);
        let labels = [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", arch),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", arch),
        ];
        labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// Returns the name of a processor architecture in Go.
fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        same => same,
    }
}
