//! Labels that identify the kubelet's pods and containers, and annotations from which the kubelet
//! restores its knowledge of them (`kuberuntime/labels.go`).

use std::collections::HashMap;

pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Hash of the container's name and image. A container with another hash is replaced.
pub(crate) const CONTAINER_HASH: &str = "io.kubernetes.container.hash";

/// Number of times that the container had been started before.
pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";

/// Path of the container's termination message, and the policy that decides whether its logs
/// replace a missing message.
pub(crate) const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub(crate) const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";

/// Grace period of the container's pod in seconds.
pub(crate) const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

/// preStop hook of the container, for other programs that stop the container.
pub(crate) const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";

/// Ports of the container.
pub(crate) const PORTS: &str = "io.kubernetes.container.ports";

/// State directory of the probeshim that manages the pod: a label of the pod's sandboxes.
pub(crate) const STATE_LABEL: &str = "probeshim.io/state";

/// Returns the labels of a sandbox.
pub(crate) fn sandbox_labels(name: &str, namespace: &str, uid: &str) -> HashMap<String, String> {
    let labels = [(POD_NAME, name), (POD_NAMESPACE, namespace), (POD_UID, uid)];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Returns the labels of a container: the labels of its sandbox, and the container's name.
pub(crate) fn container_labels(name: &str, sandbox: &HashMap<String, String>) -> HashMap<String, String> {
    let mut labels = sandbox.clone();
    labels.insert(CONTAINER_NAME.to_owned(), name.to_owned());
    labels
}
