//! What a pod and its containers may do.

use super::StringMap;
use crate::cri::v1::{SeLinuxOption, SecurityProfile};

/// What all containers of a pod may do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::kubelet) struct PodSecurity {
    pub(in crate::kubelet) fs_group: Option<i64>,
    pub(in crate::kubelet) supplemental_groups: Vec<i64>,
    pub(in crate::kubelet) is_strict_about_groups: bool,
    pub(in crate::kubelet) sysctls: StringMap,
    pub(in crate::kubelet) common: CommonSecurity,
}

/// What a container may do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::kubelet) struct Security {
    pub(in crate::kubelet) common: CommonSecurity,
    pub(in crate::kubelet) add: Vec<String>,
    pub(in crate::kubelet) drop: Vec<String>,
    pub(in crate::kubelet) is_privileged: bool,
    pub(in crate::kubelet) may_gain_privileges: Option<bool>,
    pub(in crate::kubelet) has_read_only_root: bool,
    pub(in crate::kubelet) sees_all_of_proc: bool,
}

/// What may be said for a pod, and otherwise for a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::kubelet) struct CommonSecurity {
    pub(in crate::kubelet) user: Option<i64>,
    pub(in crate::kubelet) group: Option<i64>,
    pub(in crate::kubelet) is_not_root: Option<bool>,
    pub(in crate::kubelet) selinux: Option<SeLinuxOption>,
    pub(in crate::kubelet) seccomp: Option<SecurityProfile>,
    pub(in crate::kubelet) apparmor: Option<SecurityProfile>,
}
