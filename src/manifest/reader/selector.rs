//! Reads the selector of a workload.

use serde_json::{Map, Value};

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::reader::fields::{FieldSet, check_keys, required};
use crate::manifest::validation::{LABEL_VALUE, QUALIFIED_NAME, is_label_value, is_qualified_name};
use crate::manifest::workload::WorkloadKind;

const SELECTOR: FieldSet = FieldSet::only(&["matchLabels", "matchExpressions"]);

const EXPRESSION: FieldSet = FieldSet::only(&["key", "operator", "values"]);

/// Requirement of a selector for a label.
struct Requirement<'a> {
    key: &'a str,
    operator: LabelOperator,
    values: Vec<&'a str>,
}

/// Operator of a requirement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Requirement<'_> {
    fn matches(&self, labels: &Map<String, Value>) -> bool {
        let label = labels.get(self.key).map(|label| label.as_str().unwrap_or_default());
        let is_among = label.is_some_and(|label| self.values.contains(&label));
        match self.operator {
            LabelOperator::In => is_among,
            LabelOperator::NotIn => !is_among,
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
        }
    }
}

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
        let expressions = expressions.iter().filter_map(|expression| requirement(expression, problems));
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
    if !requirements.iter().all(|requirement| requirement.matches(has)) {
        labels.as_ref().unwrap_or(&selector).error("`selector` does not match template `labels`", problems);
    }
}

/// Reads labels with their values.
fn selector_labels<'a>(labels: &Cursor<'a>, problems: &mut Vec<Violation>) -> Vec<Requirement<'a>> {
    labels.map_of_texts(problems);
    check_keys(labels, true, problems);
    let entries = labels.value().as_object().into_iter().flatten();
    entries
        .map(|(key, value)| Requirement {
            key,
            operator: LabelOperator::In,
            values: vec![value.as_str().unwrap_or_default()],
        })
        .collect()
}

/// Reads an expression of a selector
/// (`apimachinery/pkg/apis/meta/v1/validation/validation.go`: `ValidateLabelSelectorRequirement`).
fn requirement<'a>(node: &Cursor<'a>, problems: &mut Vec<Violation>) -> Option<Requirement<'a>> {
    EXPRESSION.check(node, problems);
    let operators = [
        ("In", LabelOperator::In),
        ("NotIn", LabelOperator::NotIn),
        ("Exists", LabelOperator::Exists),
        ("DoesNotExist", LabelOperator::DoesNotExist),
    ];
    required(node, "key", "", problems)?;
    if let Some(at) = node.field("key").filter(|at| !at.value().as_str().is_some_and(is_qualified_name)) {
        at.error(QUALIFIED_NAME, problems);
    }
    required(node, "operator", "", problems)?;
    let operator = node.field("operator")?.one_of(&operators, problems)?;
    let values = node.items(&["values"]);
    let takes_values = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
    if takes_values && values.is_empty() {
        node.missing("values", "must be specified when `operator` is 'In' or 'NotIn'", problems);
    }
    if let Some(at) = node.field("values").filter(|_| !takes_values && !values.is_empty()) {
        at.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'", problems);
    }
    for at in values.iter().filter(|at| !at.value().as_str().is_some_and(is_label_value)) {
        at.error(LABEL_VALUE, problems);
    }
    let text = |value: &Cursor<'a>| value.value().as_str();
    Some(Requirement {
        key: node.field("key")?.value().as_str()?,
        operator,
        values: values.iter().filter_map(text).collect(),
    })
}
