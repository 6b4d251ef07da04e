//! Payloads with the programs of a node.

use fixtures::image::{BUSYBOX, Store};
use fixtures::machine::{program, program_under_test};
use fixtures::vm::Payload;
use serde_json::{Value, json};

/// Returns a payload with the programs and images of a node.
pub(crate) fn node(script: &str) -> Result<Payload, String> {
    let busybox = program("busybox", "busybox-static")?;
    let mut payload = Payload::new(script);
    for tool in ["containerd-2.2", "crictl-1.36", "kubelet-1.36"] {
        payload = payload.tool(tool)?;
    }
    Ok(payload.program("probeshim", program_under_test()).images(&Store::new(&busybox)))
}

/// Returns a payload of a node whose kubelet is a service, with a static pod with an exec probe.
pub(crate) fn node_with_kubelet_unit(script: &str) -> Result<Payload, String> {
    let payload = node(script)?
        .file("kubelet-unit.sh", include_str!("kubelet-unit.sh").as_bytes())
        .file("manifests/probed.json", probed_pod().to_string().as_bytes());
    Ok(payload)
}

/// Returns a pod whose readiness probe is an exec probe.
pub(crate) fn probed_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probed", "namespace": "vm"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sleep", "2147483647"],
                "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 2, "timeoutSeconds": 30},
            }],
        },
    })
}
