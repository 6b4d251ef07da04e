//! The pods of an argument of `wait`.

use std::fmt;

use super::super::CliError;
use super::super::label_selector::LabelSelector;
use super::super::pod_arg::{find_pod, is_in, owner, pods_of_workload, pods_with_labels, without_kind};
use super::super::workload_arg::WorkloadArg;
use super::condition::{WaitCondition, WaitState};
use crate::admin::api::StatusPod;
use crate::terminal::sanitize;

/// The pods of one argument.
#[derive(Clone, Debug)]
pub(super) enum WaitTarget {
    /// A pod, or the pods of a workload.
    Named(String),
    /// The pods with these labels.
    Labelled(LabelSelector),
}

impl WaitTarget {
    /// Returns the state of the condition for all pods of the argument. An ambiguous name is an
    /// error.
    pub(super) fn state(
        &self,
        pods: &[StatusPod],
        namespace: Option<&str>,
        condition: WaitCondition,
    ) -> Result<WaitState, CliError> {
        match self {
            Self::Named(name) => named_state(pods, name, namespace, condition),
            Self::Labelled(selector) => {
                let selected = pods_with_labels(pods, selector, namespace);
                Ok(common_state(&selected, condition, || format!("no pod has the labels {selector}")))
            }
        }
    }
}

impl fmt::Display for WaitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) if WorkloadArg::parse(name).is_some() => f.write_str(&sanitize(name)),
            Self::Named(name) => write!(f, "pod/{}", sanitize(without_kind(name))),
            Self::Labelled(selector) => write!(f, "pods with {selector}"),
        }
    }
}

/// Returns the state of the condition for the pod with this name, or else for the pods of the
/// workload with this name. An ambiguous name is an error.
fn named_state(
    pods: &[StatusPod],
    name: &str,
    namespace: Option<&str>,
    condition: WaitCondition,
) -> Result<WaitState, CliError> {
    let plain = without_kind(name);
    let is_it = |pod: &&StatusPod| {
        is_in(pod, namespace)
            && (pod.name.as_deref() == Some(plain)
                || pod.uid.as_deref() == Some(plain)
                || owner(pod) == plain)
    };
    // The final status of a removed pod is shown for a while, also beside a new pod of its name.
    let (removed, present): (Vec<StatusPod>, Vec<StatusPod>) =
        pods.iter().filter(is_it).cloned().partition(|pod| pod.removed.is_some());
    let found = match (present.is_empty(), condition) {
        (false, _) => present,
        (true, _) if removed.is_empty() && WorkloadArg::parse(plain).is_some() => {
            let of_workload = pods_of_workload(pods, plain, namespace);
            return Ok(common_state(&of_workload, condition, || format!("{} has no pods", sanitize(plain))));
        }
        (true, WaitCondition::Deleted) => return Ok(WaitState::Met),
        (true, _) if removed.is_empty() => {
            return Ok(WaitState::Pending(format!("pod {:?} does not exist", sanitize(plain))));
        }
        (true, _) => removed,
    };
    Ok(condition.state(find_pod(&found, plain, namespace)?))
}

/// Returns the state of the condition for all of these pods. Without a pod, a condition other than
/// their deletion is pending for a reason.
fn common_state(pods: &[&StatusPod], condition: WaitCondition, reason: impl FnOnce() -> String) -> WaitState {
    if pods.is_empty() && condition != WaitCondition::Deleted {
        return WaitState::Pending(reason());
    }
    let mut unmet: Vec<WaitState> = pods.iter().map(|pod| condition.state(pod)).collect();
    unmet.retain(|state| *state != WaitState::Met);
    // A failure comes first: the wait ends with it.
    unmet.sort_by_key(|state| !matches!(state, WaitState::Failed(_)));
    unmet.into_iter().next().unwrap_or(WaitState::Met)
}
