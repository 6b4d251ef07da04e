//! Reads the fields for the host name of a pod.

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::HostnameSpec;
use crate::manifest::reader::fields::{flag, text};
use crate::manifest::validation::{DNS_LABEL, DNS_SUBDOMAIN, is_dns_label, is_dns_subdomain};

/// Maximum length of a host name in the kernel.
const MAX_OVERRIDE_LEN: usize = 64;

/// Reads the host name of a pod (Kubernetes: `core/validation/validation.go`: `ValidatePodSpec`,
/// `validateHostnameOverride`).
pub(super) fn hostname(
    spec: &Cursor<'_>,
    is_host_network: bool,
    problems: &mut Vec<Violation>,
) -> HostnameSpec {
    let mut label = |field: &str| {
        let label = text(spec, field, problems)?;
        if !is_dns_label(&label) {
            spec.field(field).inspect(|at| at.error(DNS_LABEL, problems));
        }
        Some(label)
    };
    let (hostname, subdomain) = (label("hostname"), label("subdomain"));
    let is_fqdn = flag(spec, "setHostnameAsFQDN", problems);
    let at = spec.field("hostnameOverride");
    let replacement = at.as_ref().and_then(|at| at.text(problems));
    if let (Some(at), Some(name)) = (at, &replacement) {
        if is_fqdn {
            at.forbidden("may not be specified when setHostnameAsFQDN is true", problems);
        }
        if is_host_network {
            at.forbidden("may not be specified when hostNetwork is true", problems);
        }
        if name.len() > MAX_OVERRIDE_LEN {
            at.error(format!("may not be more than {MAX_OVERRIDE_LEN} bytes"), problems);
        } else if !is_dns_subdomain(name) {
            at.error(DNS_SUBDOMAIN, problems);
        }
    }
    HostnameSpec { hostname, subdomain, is_fqdn, replacement }
}
