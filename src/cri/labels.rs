//! The labels by which a kubelet's pods and containers are known.

use std::collections::HashMap;

/// Those of a sandbox.
pub(crate) fn of_sandbox(name: &str, namespace: &str, uid: &str) -> HashMap<String, String> {
    let labels = [
        ("io.kubernetes.pod.name", name),
        ("io.kubernetes.pod.namespace", namespace),
        ("io.kubernetes.pod.uid", uid),
    ];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Those of a container, which are those of its sandbox and its own name.
pub(crate) fn of_container(name: &str, sandbox: &HashMap<String, String>) -> HashMap<String, String> {
    let mut labels = sandbox.clone();
    labels.insert("io.kubernetes.container.name".to_owned(), name.to_owned());
    labels
}
