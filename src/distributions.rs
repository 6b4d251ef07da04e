//! Distributions of Kubernetes with a containerd of their own.

use std::path::Path;

/// Socket of the containerd that k3s and RKE2 start.
pub(crate) const K3S_CONTAINERD: &str = "/run/k3s/containerd/containerd.sock";

/// Socket of the containerd of the distribution `MicroK8s`.
pub(crate) const MICROK8S_CONTAINERD: &str = "/var/snap/microk8s/common/run/containerd.sock";

/// Socket of the containerd of k0s.
pub(crate) const K0S_CONTAINERD: &str = "/run/k0s/containerd.sock";

/// Sockets of the containerd of each distribution.
const CONTAINERD: [(&str, &str); 3] =
    [("k3s or RKE2", K3S_CONTAINERD), ("MicroK8s", MICROK8S_CONTAINERD), ("k0s", K0S_CONTAINERD)];

/// Socket of the containerd of a node without such a distribution.
pub(crate) const DEFAULT_CONTAINERD: &str = "/run/containerd/containerd.sock";

/// Socket of a containerd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundContainerd {
    /// Distribution to which it belongs.
    pub(crate) distribution: &'static str,
    /// Path of the socket.
    pub(crate) socket: &'static str,
}

impl FoundContainerd {
    /// Returns the containerd of the distribution below `root`; `None` if the default socket is
    /// there, or none is.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        let is_there = |socket: &str| root.join(socket.trim_start_matches('/')).exists();
        if is_there(DEFAULT_CONTAINERD) {
            return None;
        }
        let found = CONTAINERD.into_iter().find(|(_, socket)| is_there(socket));
        found.map(|(distribution, socket)| Self { distribution, socket })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_containerd_of_a_distribution_is_found_if_the_default_socket_is_not_there() {
        let root = tempfile::tempdir().unwrap();
        let create = |socket: &str| {
            let path = root.path().join(socket.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        assert_eq!(FoundContainerd::find(root.path()), None);
        create("/run/k0s/containerd.sock");
        assert_eq!(FoundContainerd::find(root.path()).unwrap().distribution, "k0s");
        create("/run/k3s/containerd/containerd.sock");
        let found = FoundContainerd::find(root.path()).unwrap();
        assert_eq!(
            (found.distribution, found.socket),
            ("k3s or RKE2", "/run/k3s/containerd/containerd.sock")
        );
        create(DEFAULT_CONTAINERD);
        assert_eq!(FoundContainerd::find(root.path()), None);
    }
}
