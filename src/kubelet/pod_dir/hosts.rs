//! The pod's hosts file.

use std::fmt::Write as _;

use crate::kubelet::cri_config::{EnvFacts, host_names};
use crate::manifest::pod::HostAlias;

/// Entries for the local host in every hosts file (kubelet: `kubelet_pods.go`:
/// `managedHostsFileContent`).
const KNOWN_HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
                           fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

/// Returns the content of the pod's hosts file (kubelet: `kubelet_pods.go`: `ensureHostsFile`).
pub(super) fn content(facts: &EnvFacts<'_>) -> String {
    let mut text = if facts.pod.host.network {
        format!("# Kubernetes-managed hosts file (host network).\n{}", facts.node.etc_hosts)
    } else {
        let mut text = format!("# Kubernetes-managed hosts file.\n{KNOWN_HOSTS}");
        let names = host_names(facts.pod).join("\t");
        for address in facts.addresses {
            let _ = writeln!(text, "{address}\t{names}");
        }
        text
    };
    if !facts.pod.host_aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for HostAlias { ip, names } in &facts.pod.host_aliases {
            let _ = writeln!(text, "{ip}\t{}", names.join("\t"));
        }
    }
    text
}
