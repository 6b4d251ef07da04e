//! Ports of the host that pods use (Kubernetes:
//! `pkg/scheduler/framework/plugins/nodeports/node_ports.go`).

use crate::cri::v1::Protocol;
use crate::manifest::ContainerKind;
use crate::manifest::pod::Pod;

/// Address of a port on all addresses of the host.
const ANY_ADDRESS: &str = "0.0.0.0";

/// Port of the host, with its address and protocol.
type HostPort<'a> = (&'a str, Protocol, u16);

/// Returns whether a pod uses a port of the host that another pod uses.
pub(super) fn has_conflict(pod: &Pod, others: &[&Pod]) -> bool {
    let used: Vec<HostPort<'_>> = others.iter().flat_map(|other| host_ports(other)).collect();
    host_ports(pod).any(|port| used.iter().any(|used| conflicts(port, *used)))
}

/// Returns the ports of the host that a pod uses as long as it runs (`pkg/scheduler/util/utils.go`:
/// `GetHostPorts`).
fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let containers = pod.containers.iter().filter(|container| container.spec.role != ContainerKind::Init);
    let ports = containers.flat_map(|container| &container.ports).filter(|port| port.host != 0);
    ports.map(|port| {
        let address = if port.host_ip.is_empty() { ANY_ADDRESS } else { &port.host_ip };
        (address, port.protocol, port.host)
    })
}

fn conflicts(port: HostPort<'_>, used: HostPort<'_>) -> bool {
    let addresses = [port.0, used.0];
    (port.1, port.2) == (used.1, used.2) && (addresses[0] == addresses[1] || addresses.contains(&ANY_ADDRESS))
}
