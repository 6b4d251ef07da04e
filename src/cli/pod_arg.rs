//! The pod to which a command refers.

use std::collections::BTreeSet;

use clap::Args;

use super::CliError;
use super::label_selector::LabelSelector;
use super::pod_summary::by_pod;
use super::workload_arg::WorkloadArg;
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

/// The namespace whose objects are listed. `-A` is accepted, because users of kubectl write it.
#[derive(Debug, Default, Args)]
pub(super) struct ListNamespaceArgs {
    #[command(flatten)]
    pub(super) of: NamespaceArg,

    /// List the objects of all namespaces, as without this flag
    #[arg(short = 'A', long, hide = true, conflicts_with = "namespace")]
    all_namespaces: bool,
}

/// Returns the pod with this name, `NAMESPACE/NAME` or uid, or a pod of the workload `KIND/NAME`,
/// with its last sandbox. `namespace` limits the pods. If the workload has several pods, also
/// returns a remark in the words of kubectl.
pub(super) fn find_one_pod<'a>(
    all: &'a [StatusPod],
    name: &str,
    namespace: Option<&str>,
) -> Result<(&'a StatusPod, Option<String>), CliError> {
    let pods = pods_of_workload(all, name, namespace);
    let ready = || pods.iter().find(|pod| pod.ready == Some(true));
    match (find_pod(all, name, namespace), pods.len()) {
        (Ok(pod), _) => Ok((pod, None)),
        (Err(error), 0) => Err(error),
        (Err(_), count) => {
            let pod = ready().copied().unwrap_or(pods[0]);
            let remark = format!("Found {count} pods, using pod/{}", pod.name.as_deref().unwrap_or_default());
            Ok((pod, (count > 1).then_some(remark)))
        }
    }
}

/// Returns whether a pod is in a namespace; `None` stands for all.
pub(super) fn is_in(pod: &StatusPod, namespace: Option<&str>) -> bool {
    namespace.is_none() || pod.namespace.as_deref() == namespace
}

/// Returns the last sandbox of each pod. A pod whose sandbox was replaced has several.
pub(super) fn last_sandboxes<'a>(sandboxes: impl Iterator<Item = &'a StatusPod>) -> Vec<&'a StatusPod> {
    let pods = by_pod(&sandboxes.collect::<Vec<_>>());
    pods.iter().filter_map(|pod| pod.last().copied()).collect()
}

/// Returns the pods with labels. `namespace` limits the pods.
pub(super) fn pods_with_labels<'a>(
    all: &'a [StatusPod],
    selector: &LabelSelector,
    namespace: Option<&str>,
) -> Vec<&'a StatusPod> {
    let is_it =
        |pod: &&StatusPod| pod.removed.is_none() && is_in(pod, namespace) && selector.matches(&pod.labels);
    last_sandboxes(all.iter().filter(is_it))
}

/// Returns the pods of the workload `KIND/NAME`. `namespace` limits the pods.
pub(super) fn pods_of_workload<'a>(
    all: &'a [StatusPod],
    name: &str,
    namespace: Option<&str>,
) -> Vec<&'a StatusPod> {
    let workload = WorkloadArg::parse(name);
    let has = |pod: &&StatusPod| workload.as_ref().is_some_and(|workload| workload.has(pod));
    last_sandboxes(all.iter().filter(|pod| is_in(pod, namespace)).filter(has))
}

/// Returns the pod with this name, `NAMESPACE/NAME` or uid, with its last sandbox. `namespace`
/// limits the pods.
pub(super) fn find_pod<'a>(
    all: &'a [StatusPod],
    name: &str,
    namespace: Option<&str>,
) -> Result<&'a StatusPod, CliError> {
    let pods = all.iter().filter(|pod| is_in(pod, namespace));
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
        (None, _) if WorkloadArg::parse(name).is_some() => {
            let of_workload = pods_of_workload(all, name, namespace);
            let pods = if of_workload.is_empty() {
                format!("has no pods; the pods are {}", listed(&pods))
            } else {
                format!("is a workload; its pods are {}", listed(&of_workload))
            };
            Err(CliError::Usage(format!("POD {shown_name:?} {pods}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Vec<StatusPod> {
        let pod = |name: &str, ready: bool| {
            serde_json::json!({
                "namespace": "shop", "name": name, "uid": name, "id": name, "sandbox": "ready", "ip": null,
                "source": "play", "ready": ready, "containers": [],
            })
        };
        let pods = [
            pod("web-5d4f8c7b9-x2x4z", false),
            pod("web-5d4f8c7b9-k7b2x", true),
            pod("db-0", true),
            pod("api", true),
        ];
        serde_json::from_value(serde_json::json!(pods)).unwrap()
    }

    fn usage<T>(result: Result<T, CliError>) -> String {
        match result {
            Err(CliError::Usage(error)) => error,
            _ => panic!("no usage error"),
        }
    }

    #[test]
    fn a_workload_refers_to_one_of_its_pods_if_the_command_takes_one() {
        let pods = pods();
        let find = |name: &str| {
            let (pod, remark) = find_one_pod(&pods, name, None).unwrap_or_else(|_| panic!("{name}"));
            (pod.name.as_deref().unwrap_or_default(), remark)
        };
        let remark = Some("Found 2 pods, using pod/web-5d4f8c7b9-k7b2x".to_owned());
        for name in ["deployment/web", "deploy/web", "deployment.apps/web", "Deployment/web"] {
            assert_eq!(
                find(name),
                ("web-5d4f8c7b9-k7b2x", remark.clone()),
                "a pod that is ready comes first"
            );
        }
        assert_eq!(find("sts/db"), ("db-0", None));
        assert_eq!(find("shop/api"), ("api", None));
        let error = usage(find_one_pod(&pods, "deploy/db", None));
        assert!(error.starts_with("POD \"deploy/db\" has no pods; the pods are shop/api, "), "{error}");
        assert!(find_one_pod(&pods, "deploy/web", Some("other")).is_err());
    }

    #[test]
    fn a_workload_is_no_pod() {
        let error = usage(find_pod(&pods(), "deploy/web", None));
        let expected = "POD \"deploy/web\" is a workload; its pods are shop/web-5d4f8c7b9-k7b2x, shop/web-5d4f8c7b9-x2x4z";
        assert_eq!(error, expected);
    }
}
