//! The pod to which a command refers.

use std::collections::BTreeSet;

use clap::Args;

use super::CliError;
use crate::admin::api::StatusPod;
use crate::suggest::did_you_mean;
use crate::terminal::{MAX_NAME_WIDTH, harmless_name, shortened};

/// Maximum number of pod names in the error for an unknown or ambiguous name.
const MAX_NAMES: usize = 10;

/// The flag that selects a namespace.
#[derive(Debug, Default, Args)]
pub(super) struct NamespaceArg {
    /// Namespace of the pods [default: all namespaces]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
}

/// Returns the pod with this name, `NAMESPACE/NAME` or uid, with its last sandbox. `namespace`
/// limits the pods.
pub(super) fn find_pod<'a>(
    all: &'a [StatusPod],
    name: &str,
    namespace: Option<&str>,
) -> Result<&'a StatusPod, CliError> {
    let pods = all.iter().filter(|pod| namespace.is_none() || pod.namespace.as_deref() == namespace);
    let pods: Vec<&StatusPod> = pods.collect();
    let is_it = |pod: &&&StatusPod| {
        pod.name.as_deref() == Some(name) || pod.uid.as_deref() == Some(name) || owner(pod) == name
    };
    let found: Vec<&StatusPod> = pods.iter().filter(is_it).copied().collect();
    let plain = without_kind(name);
    if plain != name && found.is_empty() {
        return find_pod(all, plain, namespace);
    }
    let shown_name = shortened(name, MAX_NAME_WIDTH);
    match (found.last(), names(&found).len()) {
        (Some(pod), 1) => Ok(pod),
        (Some(_), _) => {
            Err(CliError::Usage(format!("POD {shown_name:?} is ambiguous: it may be {}", listed(&found))))
        }
        (None, _) if pods.is_empty() => {
            let place = namespace.map(|namespace| format!(" in namespace {namespace:?}")).unwrap_or_default();
            Err(CliError::Usage(format!("POD {shown_name:?} not found: there are no pods{place}")))
        }
        (None, _) => {
            let known = pods.iter().filter_map(|pod| pod.name.as_deref());
            let hint = did_you_mean(name, known);
            Err(CliError::Usage(format!(
                "POD {shown_name:?} not found{hint}; the pods are {}",
                listed(&pods)
            )))
        }
    }
}

/// Returns a name without the kind before it, which kubectl accepts and `-o name` prints.
pub(super) fn without_kind(name: &str) -> &str {
    ["pod/", "pods/", "po/"].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name)
}

/// Returns `NAMESPACE/NAME` of a pod.
pub(super) fn owner(pod: &StatusPod) -> String {
    pod.namespace.iter().chain(&pod.name).cloned().collect::<Vec<_>>().join("/")
}

fn names(pods: &[&StatusPod]) -> BTreeSet<String> {
    pods.iter().map(|pod| owner(pod)).collect()
}

/// Lists the names of pods, the first of them if there are many.
fn listed(pods: &[&StatusPod]) -> String {
    let names = names(pods);
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| harmless_name(name)).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
