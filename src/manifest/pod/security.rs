//! Security contexts of a pod and of its containers.

use crate::cri::v1::{SeLinuxOption, SecurityProfile};

/// Prefix of the annotations that named the AppArmor profile of a container before the field
/// `appArmorProfile` did. Static pods may still have them.
pub(crate) const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The security settings that apply to all containers of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodSecurity {
    pub(crate) fs_group: Option<i64>,
    pub(crate) supplemental_groups: Vec<i64>,
    pub(crate) is_strict_about_groups: bool,
    /// Names, in the notation with dots, and values of kernel parameters, as written.
    pub(crate) sysctls: Vec<(String, String)>,
    pub(crate) common: CommonSecurity,
}

/// The security settings of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Security {
    pub(crate) common: CommonSecurity,
    pub(crate) add: Vec<String>,
    pub(crate) drop: Vec<String>,
    pub(crate) is_privileged: bool,
    pub(crate) may_gain_privileges: Option<bool>,
    pub(crate) has_read_only_root: bool,
    pub(crate) sees_all_of_proc: bool,
}

/// Security settings that a pod or a container can have. Those of the container take precedence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CommonSecurity {
    pub(crate) user: Option<i64>,
    pub(crate) group: Option<i64>,
    pub(crate) is_not_root: Option<bool>,
    pub(crate) selinux: Option<SeLinuxOption>,
    pub(crate) seccomp: Option<SecurityProfile>,
    pub(crate) apparmor: Option<SecurityProfile>,
}
