//! The kubelet that runs on this node: its process, its configuration, and its read-only port.
//!
//! Nothing here needs a credential, and nothing is taken from a process of another user than root:
//! any user may start a program of this name, and bind a free port.

pub(crate) mod configuration;
mod ignored;
mod kubeconfig;
mod process;
mod read_only_port;

pub use configuration::ConfigurationError;
pub(crate) use configuration::KubeletConfiguration;
pub(crate) use ignored::{IgnoreReason, IgnoredKubelet};
pub(crate) use kubeconfig::installed_kubeconfig;
pub(crate) use process::KubeletProcess;
#[cfg(test)]
pub(crate) use process::tests::FakeProc;
pub(crate) use read_only_port::{ListeningSocket, PortError};

use std::path::{Path, PathBuf};

/// Directory of static pods that kubeadm configures.
const KUBEADM_MANIFESTS: &str = "/etc/kubernetes/manifests";

/// Directories of static pods of distributions whose kubelet may have no process of its own.
const KNOWN_MANIFESTS: [&str; 3] = [
    KUBEADM_MANIFESTS,
    "/var/lib/rancher/k3s/agent/pod-manifests",
    "/var/lib/rancher/rke2/agent/pod-manifests",
];

/// Returns the directories of static pods that exist on a node without a kubelet's process.
pub(crate) fn known_manifest_dirs() -> Vec<PathBuf> {
    KNOWN_MANIFESTS.iter().map(PathBuf::from).filter(|dir| dir.is_dir()).collect()
}

/// Returns a path as this process can open it. `root` is the root directory of the process that
/// names the path.
fn below(root: &Path, path: &Path) -> PathBuf {
    if root == Path::new("/") { path.to_owned() } else { root.join(path.strip_prefix("/").unwrap_or(path)) }
}
