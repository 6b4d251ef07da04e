//! The control group under which a runtime creates those of a pod's containers.

use crate::cri::v1::CgroupDriver;
use crate::manifest::pod::Pod;

/// Returns the parent of a pod's control groups. A runtime with the systemd driver requires a slice
/// of systemd, which systemd creates and removes on demand. The slice is outside of `kubepods`,
/// where a kubelet of this node would remove the groups of pods that it does not know (kubelet:
/// `cm/pod_container_manager_linux.go`: `GetPodContainerName`). With cgroupfs the runtime uses its
/// own parent.
pub(super) fn parent(pod: &Pod, driver: CgroupDriver) -> String {
    match driver {
        CgroupDriver::Systemd => format!("/probeshim.slice/probeshim-pod{}.slice", escape(&pod.uid)),
        CgroupDriver::Cgroupfs => String::new(),
    }
}

/// Replaces characters that have a meaning in names of slices, or are not allowed there. A dash
/// separates a slice from its parent (kubelet: `cm/cgroup_manager_linux.go`:
/// `escapeSystemdCgroupName`).
fn escape(uid: &str) -> String {
    uid.chars().map(|it| if it.is_ascii_alphanumeric() || it == '.' { it } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::pod::PodOrigin;

    #[test]
    fn pods_of_a_runtime_with_the_systemd_driver_have_a_slice() {
        let pod = |uid: &str| {
            let [namespace, name, uid] = ["n", "p", uid].map(str::to_owned);
            Pod::identity_only([namespace, name, uid], PodOrigin::Manifest)
        };
        for (uid, driver, expected) in [
            ("5f-1", CgroupDriver::Systemd, "/probeshim.slice/probeshim-pod5f_1.slice"),
            ("a/../b c", CgroupDriver::Systemd, "/probeshim.slice/probeshim-poda_.._b_c.slice"),
            ("5f-1", CgroupDriver::Cgroupfs, ""),
        ] {
            assert_eq!(parent(&pod(uid), driver), expected, "{uid} {driver:?}");
        }
    }
}
