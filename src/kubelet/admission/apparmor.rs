//! AppArmor profiles of a pod (kubelet: `lifecycle/handlers.go`: `appArmorAdmitHandler`).

use super::Rejection;
use crate::cri::v1::security_profile::ProfileType;
use crate::events::reason;
use crate::kubelet::node::NodeInfo;
use crate::manifest::pod::{APPARMOR_ANNOTATION, CommonSecurity, Pod};

/// Profile in an annotation of a container without AppArmor.
const UNCONFINED: &str = "unconfined";

/// Checks that the node has AppArmor if the pod needs it.
pub(super) fn check(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    if node.has_apparmor || !requires_apparmor(pod) {
        return Ok(());
    }
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    Err(Rejection::new(reason::APP_ARMOR, message))
}

/// Returns whether a pod has a profile of AppArmor (`pkg/security/apparmor/helpers.go`:
/// `isRequired`).
fn requires_apparmor(pod: &Pod) -> bool {
    let is_confined = |security: &CommonSecurity| {
        security.apparmor.as_ref().is_some_and(|it| it.profile_type() != ProfileType::Unconfined)
    };
    is_confined(&pod.security.common)
        || pod.containers.iter().any(|container| is_confined(&container.security.common))
        || pod
            .annotations
            .iter()
            .any(|(key, profile)| key.starts_with(APPARMOR_ANNOTATION) && profile != UNCONFINED)
}
