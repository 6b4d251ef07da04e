//! Labels and names of nodes that a pod accepts (Kubernetes:
//! `component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go`: `GetRequiredNodeAffinity`).

use crate::kubelet::node::NodeInfo;
use crate::manifest::pod::{
    NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, Placement, StringMap,
};

/// Returns whether the node has the labels of the node selector and matches a term of the required
/// node affinity.
pub(super) fn matches(placement: &Placement, node: &NodeInfo) -> bool {
    let labels = node.labels();
    placement.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && placement
            .node_affinity
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| term_matches(term, &labels, &node.name)))
}

/// Returns whether the node satisfies all requirements of a term. A term without requirements
/// matches no node. `metadata.name` is the only field of a node.
fn term_matches(term: &NodeSelectorTerm, labels: &StringMap, name: &str) -> bool {
    let is_empty = term.labels.is_empty() && term.fields.is_empty();
    !is_empty
        && term.labels.iter().all(|it| is_satisfied(it, labels.get(&it.key).map(String::as_str)))
        && term.fields.iter().all(|it| is_satisfied(it, Some(name)))
}

/// Returns whether a label or field with this value satisfies a requirement
/// (`apimachinery/pkg/labels/selector.go`: `Matches`).
fn is_satisfied(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let is_listed = value.is_some_and(|value| requirement.values.iter().any(|known| known == value));
    // Texts that are not integers satisfy no comparison.
    let compare = |is: fn(&i64, &i64) -> bool| {
        let limit = requirement.values.first().and_then(|limit| limit.parse().ok());
        let number = value.and_then(|value| value.parse().ok());
        number.zip(limit).is_some_and(|(number, limit)| is(&number, &limit))
    };
    match requirement.operator {
        NodeSelectorOperator::In => is_listed,
        NodeSelectorOperator::NotIn => !is_listed,
        NodeSelectorOperator::Exists => value.is_some(),
        NodeSelectorOperator::DoesNotExist => value.is_none(),
        NodeSelectorOperator::Gt => compare(i64::gt),
        NodeSelectorOperator::Lt => compare(i64::lt),
    }
}
