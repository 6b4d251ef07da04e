//! Host name and domain of a pod (kubelet: `kubelet_pods.go`: `GeneratePodHostNameAndDomain`).

use crate::manifest::pod::Pod;

/// Maximum length of a host name (kubelet: `kubelet_pods.go`: `truncatePodHostnameIfNeeded`).
const MAX_HOSTNAME_LEN: usize = 63;

/// Maximum length of a host name with its domain (kubelet: `util/util.go`:
/// `GetNodenameForKernel`).
const MAX_FQDN_LEN: usize = 64;

/// A host name with its domain does not fit into the kernel.
#[derive(Debug, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({MAX_FQDN_LEN} characters is the max, {} characters requested)",
    fqdn.len()
)]
pub(in crate::kubelet) struct FqdnTooLong {
    fqdn: String,
}

/// Returns the host name of a pod, without its domain.
fn hostname(pod: &Pod) -> String {
    let spec = &pod.hostname;
    let name = spec.replacement.as_ref().or(spec.hostname.as_ref()).unwrap_or(&pod.name);
    let end = name.len().min(MAX_HOSTNAME_LEN);
    // Names in Kubernetes are ASCII.
    let cut = name.get(..end).unwrap_or(name);
    if cut.len() < name.len() { cut.trim_end_matches(['-', '.']).to_owned() } else { cut.to_owned() }
}

/// Returns the host name of a pod with its domain, if it has one. The domain ends with a dot,
/// because a node without a cluster has no cluster domain.
fn fqdn(pod: &Pod) -> Option<String> {
    let subdomain = pod.hostname.subdomain.as_ref().filter(|_| pod.hostname.replacement.is_none())?;
    Some(format!("{}.{subdomain}.{}.svc.", hostname(pod), pod.namespace))
}

/// Returns the host names of a pod for its hosts file: the name with the domain, if the pod has
/// one, and the name (kubelet: `kubelet_pods.go`: `managedHostsFileContent`).
pub(in crate::kubelet) fn host_names(pod: &Pod) -> Vec<String> {
    fqdn(pod).into_iter().chain([hostname(pod)]).collect()
}

/// Returns the host name that the kernel has in the pod (kubelet: `util/util.go`:
/// `GetNodenameForKernel`).
pub(super) fn kernel_hostname(pod: &Pod) -> Result<String, FqdnTooLong> {
    match fqdn(pod).filter(|_| pod.hostname.is_fqdn) {
        None => Ok(hostname(pod)),
        Some(fqdn) if fqdn.len() <= MAX_FQDN_LEN => Ok(fqdn),
        Some(fqdn) => Err(FqdnTooLong { fqdn }),
    }
}
