//! Payloads with a kubelet as a service.

use fixtures::image::{BUSYBOX, Store};
use fixtures::machine::{program, program_under_test};
use fixtures::vm::Payload;
use serde_json::{Value, json};

/// Returns a payload with the tools of a node, and a static pod with an exec probe.
pub(crate) fn payload(script: &str) -> Result<Payload, String> {
    let busybox = program("busybox", "busybox-static")?;
    let mut payload = Payload::new(script);
    for tool in ["containerd-2.2", "crictl-1.36", "kubelet-1.36"] {
        payload = payload.tool(tool)?;
    }
    let payload = payload
        .program("probeshim", program_under_test())
        .images(&Store::new(&busybox))
        .file("kubelet-unit.sh", include_str!("kubelet-unit.sh").as_bytes())
        .file("manifests/probed.json", probed_pod().to_string().as_bytes());
    Ok(payload)
}

/// Returns a pod whose readiness probe is an exec probe.
fn probed_pod() -> Value {
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
