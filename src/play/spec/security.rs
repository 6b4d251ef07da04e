//! What a pod and its containers may do.

use super::StringMap;
use crate::cri::v1::{SeLinuxOption, SecurityProfile};

/// What all containers of a pod may do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::play) struct PodSecurity {
    pub(in crate::play) fs_group: Option<i64>,
    pub(in crate::play) supplemental_groups: Vec<i64>,
    pub(in crate::play) is_strict_about_groups: bool,
    pub(in crate::play) sysctls: StringMap,
    pub(in crate::play) common: CommonSecurity,
}

/// What a container may do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::play) struct Security {
    pub(in crate::play) common: CommonSecurity,
    pub(in crate::play) add: Vec<String>,
    pub(in crate::play) drop: Vec<String>,
    pub(in crate::play) is_privileged: bool,
    pub(in crate::play) may_gain_privileges: Option<bool>,
    pub(in crate::play) has_read_only_root: bool,
    pub(in crate::play) sees_all_of_proc: bool,
}

/// What may be said for a pod, and otherwise for a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::play) struct CommonSecurity {
    pub(in crate::play) user: Option<i64>,
    pub(in crate::play) group: Option<i64>,
    pub(in crate::play) is_not_root: Option<bool>,
    pub(in crate::play) selinux: Option<SeLinuxOption>,
    pub(in crate::play) seccomp: Option<SecurityProfile>,
    pub(in crate::play) apparmor: Option<SecurityProfile>,
}
