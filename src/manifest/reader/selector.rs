//! Reads the selector of a workload.

use serde_json::{Map, Value};

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{NodeSelectorOperator, NodeSelectorRequirement};
use crate::manifest::reader::fields::{FieldSet, check_keys};
use crate::manifest::reader::placement::{Subject, requirement};
use crate::manifest::workload::WorkloadKind;

const SELECTOR: FieldSet = FieldSet::only(&["matchLabels", "matchExpressions"]);

/// Reports a selector that is missing or does not match the labels of the template, as the API
/// server does. probeshim itself needs no selector (`pkg/apis/apps/validation/validation.go`:
/// `ValidateDeploymentSpec`, `ValidatePodTemplateSpecForReplicaSet`).
pub(super) fn check_selector(kind: WorkloadKind, spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let labels = spec.at(&["template", "metadata", "labels"]);
    let is_empty = |object: &Cursor<'_>| object.value().as_object().is_some_and(Map::is_empty);
    // The selector of a ReplicationController is by default the labels of the template.
    let has_default = kind == WorkloadKind::ReplicationController
        && labels.as_ref().is_some_and(|labels| !is_empty(labels));
    let selector = spec.field("selector").filter(|selector| !(has_default && is_empty(selector)));
    let Some(selector) = selector else {
        if !has_default {
            spec.missing(
                "selector",
                "labels of the template, which identify the pods of the workload",
                problems,
            );
        }
        return;
    };
    let before = problems.len();
    let requirements = if kind == WorkloadKind::ReplicationController {
        selector_labels(&selector, problems)
    } else {
        SELECTOR.check(&selector, problems);
        let labels = selector.field("matchLabels").map(|labels| selector_labels(&labels, problems));
        let expressions = selector.items(&["matchExpressions"]);
        let expressions =
            expressions.iter().filter_map(|expression| requirement(expression, Subject::PodLabel, problems));
        labels.unwrap_or_default().into_iter().chain(expressions).collect()
    };
    if problems.len() > before {
        return;
    }
    if requirements.is_empty() {
        selector.error(format!("empty selector is invalid for a {}", kind.name()), problems);
        return;
    }
    let metadata = spec.at(&["template", "metadata"]);
    if metadata.iter().chain(&labels).any(|at| !at.value().is_object()) {
        // Others report the type.
        return;
    }
    let no_labels = Map::new();
    let has = labels.as_ref().and_then(|labels| labels.value().as_object()).unwrap_or(&no_labels);
    if !requirements.iter().all(|requirement| matches(requirement, has)) {
        labels.as_ref().unwrap_or(&selector).error("`selector` does not match template `labels`", problems);
    }
}

/// Reads labels with their values.
fn selector_labels(labels: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<NodeSelectorRequirement> {
    check_keys(labels, true, problems);
    let entries = labels.map_of_texts(problems).into_iter();
    entries
        .map(|(key, value)| NodeSelectorRequirement {
            key,
            operator: NodeSelectorOperator::In,
            values: vec![value],
        })
        .collect()
}

/// Returns whether labels meet a requirement.
fn matches(requirement: &NodeSelectorRequirement, labels: &Map<String, Value>) -> bool {
    let label = labels.get(&requirement.key).map(|label| label.as_str().unwrap_or_default());
    let is_among = label.is_some_and(|label| requirement.values.iter().any(|value| value == label));
    match requirement.operator {
        NodeSelectorOperator::NotIn => !is_among,
        NodeSelectorOperator::Exists => label.is_some(),
        NodeSelectorOperator::DoesNotExist => label.is_none(),
        // The operators for numbers are not among those of a selector.
        NodeSelectorOperator::In | NodeSelectorOperator::Gt | NodeSelectorOperator::Lt => is_among,
    }
}
