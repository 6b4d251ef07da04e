//! Kernel parameters of a pod (kubelet: `sysctl/allowlist.go`).

use super::Rejection;
use crate::events::reason;
use crate::gofmt::quote;
use crate::manifest::pod::Pod;

/// Kernel parameters that the kubelet allows by default. All of them are namespaced since Linux
/// 4.15 (`sysctl/safe_sysctls.go`).
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Checks that all kernel parameters are safe. The reader has checked that the pod has the
/// namespaces of its parameters.
pub(super) fn check(pod: &Pod) -> Result<(), Rejection> {
    match pod.security.sysctls.iter().find(|(name, _)| !SAFE.contains(&name.as_str())) {
        Some((name, _)) => {
            let message = format!("forbidden sysctl: {} not allowlisted", quote(name));
            Err(Rejection::new(reason::SYSCTL_FORBIDDEN, message))
        }
        None => Ok(()),
    }
}
