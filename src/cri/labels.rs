//! The labels by which a kubelet's pods and containers are known, and the annotations in which it notes what it has to know of them again.

use std::collections::HashMap;

pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// What a container is taken for: another image makes it another container.
pub(crate) const CONTAINER_HASH: &str = "io.kubernetes.container.hash";

/// How often a container had been started before.
pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";

/// Where a container leaves what it has to say of its end, and whether its logs say it where it does not.
pub(crate) const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub(crate) const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";

/// The grace period of a container's pod, in seconds.
pub(crate) const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

/// The hook of a container, for others who stop it.
pub(crate) const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";

/// The ports of a container.
pub(crate) const PORTS: &str = "io.kubernetes.container.ports";

/// Which probeshim plays a pod, by the folder of its state: a label of its sandboxes.
pub(crate) const STATE_LABEL: &str = "probeshim.io/state";

/// Labels of a sandbox.
pub(crate) fn sandbox_labels(name: &str, namespace: &str, uid: &str) -> HashMap<String, String> {
    let labels = [(POD_NAME, name), (POD_NAMESPACE, namespace), (POD_UID, uid)];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Those of a container, which are those of its sandbox and its own name.
pub(crate) fn container_labels(name: &str, sandbox: &HashMap<String, String>) -> HashMap<String, String> {
    let mut labels = sandbox.clone();
    labels.insert(CONTAINER_NAME.to_owned(), name.to_owned());
    labels
}
