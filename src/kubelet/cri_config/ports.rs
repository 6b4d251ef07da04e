//! Port mappings of a sandbox (kubelet: `container/helpers.go`: `MakePortMappings`).

use std::collections::HashSet;

use crate::cri::v1;
use crate::manifest::pod::PortMapping;

/// Returns the mappings of a container's ports. Ports that have no name and are otherwise equal
/// give one mapping.
pub(super) fn mappings(ports: &[PortMapping]) -> Vec<v1::PortMapping> {
    let mut known = HashSet::new();
    let key =
        |port: &PortMapping| (i32::from(port.protocol), port.host_ip.clone(), port.container, port.host);
    let new = ports.iter().filter(|port| !port.name.is_empty() || known.insert(key(port)));
    new.map(mapping).collect()
}

fn mapping(port: &PortMapping) -> v1::PortMapping {
    v1::PortMapping {
        protocol: port.protocol.into(),
        container_port: port.container.into(),
        host_port: port.host.into(),
        host_ip: port.host_ip.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::reader::tests::pod;

    #[test]
    fn equal_ports_without_a_name_are_mapped_once() {
        let pod = pod("{containers: [{name: a, image: i, ports: [{containerPort: 80}, {containerPort: 80}, \
             {containerPort: 80, protocol: UDP}, {containerPort: 80, hostIP: 127.0.0.1}, \
             {containerPort: 80, name: one}, {containerPort: 80, name: two}]}]}");
        let mapped = mappings(&pod.containers[0].ports);
        let ports: Vec<_> = mapped.iter().map(|port| (port.protocol, port.host_ip.as_str())).collect();
        assert_eq!(ports, [(0, ""), (1, ""), (0, "127.0.0.1"), (0, ""), (0, "")]);
    }
}
