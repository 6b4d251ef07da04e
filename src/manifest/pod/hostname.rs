//! Fields for the host name of a pod.

/// Fields that determine the host name and the domain of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HostnameSpec {
    /// `hostname`; `None` for the name of the pod.
    pub(crate) hostname: Option<String>,
    /// `subdomain`: first label of the domain.
    pub(crate) subdomain: Option<String>,
    /// `setHostnameAsFQDN`: the host name in the kernel includes the domain.
    pub(crate) is_fqdn: bool,
    /// `hostnameOverride`: host name without a domain, which takes precedence.
    pub(crate) replacement: Option<String>,
}
