//! The control group under which a runtime creates those of a pod's containers.

use crate::cri::v1::CgroupDriver;

/// Slice of the pods of a runtime with the systemd driver.
const SLICE: &str = "/probeshim.slice";

/// Returns the parent of a pod's control groups. A runtime with the systemd driver requires a slice
/// of systemd, which systemd creates on demand. One slice serves all pods, because systemd does not
/// remove empty slices. It is outside of `kubepods`, where a kubelet of this node would remove the
/// groups of pods that it does not know (kubelet: `cm/pod_container_manager_linux.go`:
/// `GetPodContainerName`). With cgroupfs the runtime uses its own parent.
pub(super) fn parent(driver: CgroupDriver) -> String {
    match driver {
        CgroupDriver::Systemd => SLICE.to_owned(),
        CgroupDriver::Cgroupfs => String::new(),
    }
}
