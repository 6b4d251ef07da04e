//! The kubeconfig with which a kubelet reaches its API server.

use std::path::{Path, PathBuf};

/// Kubeconfigs of kubelets that kubeadm, k3s and RKE2 write, with the names of the distributions.
const KNOWN_KUBECONFIGS: [(&str, &str); 3] = [
    ("kubeadm", "/etc/kubernetes/kubelet.conf"),
    ("k3s", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    ("RKE2", "/var/lib/rancher/rke2/agent/kubelet.kubeconfig"),
];

/// Returns the first kubeconfig that a distribution has written below `root`, and the name of the
/// distribution.
pub(crate) fn installed_kubeconfig(root: &Path) -> Option<(&'static str, PathBuf)> {
    let exists = |path: &str| super::below(root, Path::new(path)).is_file();
    let (name, path) = KNOWN_KUBECONFIGS.into_iter().find(|(_, path)| exists(path))?;
    Some((name, PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_kubeconfig_of_a_distribution_is_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(installed_kubeconfig(root.path()), None);
        let dir = root.path().join("var/lib/rancher/rke2/agent");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("kubelet.kubeconfig"), "").unwrap();
        let expected = PathBuf::from("/var/lib/rancher/rke2/agent/kubelet.kubeconfig");
        assert_eq!(installed_kubeconfig(root.path()), Some(("RKE2", expected)));
    }
}
