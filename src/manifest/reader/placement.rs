//! Reads the rules that the node of a pod must satisfy (Kubernetes:
//! `core/validation/validation.go`: `validateNodeAffinity`, `ValidateNodeSelector`).

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, Placement};
use crate::manifest::reader::fields::{FieldSet, check_keys, list, required};
use crate::manifest::reader::os;
use crate::manifest::validation::{
    DNS_SUBDOMAIN, LABEL_VALUE, QUALIFIED_NAME, is_dns_subdomain, is_label_value, is_qualified_name,
};

/// Field of the required node affinity. The kubelet does not check other affinities.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

const AFFINITY: FieldSet =
    FieldSet { known: &["nodeAffinity"], ignored: &["podAffinity", "podAntiAffinity"], unsupported: &[] };

const NODE_AFFINITY: FieldSet = FieldSet {
    known: &[REQUIRED],
    ignored: &["preferredDuringSchedulingIgnoredDuringExecution"],
    unsupported: &[],
};

const NODE_SELECTOR: FieldSet = FieldSet::only(&["nodeSelectorTerms"]);

const TERM: FieldSet = FieldSet::only(&["matchExpressions", "matchFields"]);

const REQUIREMENT: FieldSet = FieldSet::only(&["key", "operator", "values"]);

/// The only field of a node by which pods can select it.
const NODE_NAME: &str = "metadata.name";

/// Subject of a requirement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Labels of a node.
    Label,
    /// Fields of a node.
    Field,
    /// Labels of the pods of a workload.
    PodLabel,
}

impl Subject {
    /// Returns the operators that a requirement of this subject can have.
    fn operators(self) -> &'static [(&'static str, NodeSelectorOperator)] {
        const ALL: [(&str, NodeSelectorOperator); 6] = [
            ("In", NodeSelectorOperator::In),
            ("NotIn", NodeSelectorOperator::NotIn),
            ("Exists", NodeSelectorOperator::Exists),
            ("DoesNotExist", NodeSelectorOperator::DoesNotExist),
            ("Gt", NodeSelectorOperator::Gt),
            ("Lt", NodeSelectorOperator::Lt),
        ];
        match self {
            Self::Label => &ALL,
            Self::Field => &ALL[..2],
            Self::PodLabel => &ALL[..4],
        }
    }
}

/// Reads the placement of a pod.
pub(super) fn placement(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Placement {
    let selector = spec.field("nodeSelector");
    if let Some(labels) = &selector {
        check_keys(labels, true, problems);
    }
    Placement {
        is_windows: os::is_windows(spec, problems),
        node_selector: selector.map(|labels| labels.map_of_texts(problems)).unwrap_or_default(),
        node_affinity: node_affinity(spec, problems),
    }
}

/// Reads the terms of the required node affinity.
fn node_affinity(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Vec<NodeSelectorTerm>> {
    let affinity = spec.field("affinity")?;
    AFFINITY.check(&affinity, problems);
    let affinity = affinity.field("nodeAffinity")?;
    NODE_AFFINITY.check(&affinity, problems);
    let selector = affinity.field(REQUIRED)?;
    NODE_SELECTOR.check(&selector, problems);
    let terms = list(&selector, "nodeSelectorTerms", problems);
    let is_list = selector.field("nodeSelectorTerms").is_none_or(|terms| terms.value().is_array());
    if terms.is_empty() && is_list && selector.value().is_object() {
        selector.missing("nodeSelectorTerms", "must have at least one node selector term", problems);
    }
    Some(terms.iter().map(|node| term(node, problems)).collect())
}

fn term(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> NodeSelectorTerm {
    TERM.check(node, problems);
    let mut read = |field: &str, subject: Subject| {
        let nodes = list(node, field, problems);
        nodes.iter().filter_map(|node| requirement(node, subject, problems)).collect()
    };
    NodeSelectorTerm {
        labels: read("matchExpressions", Subject::Label),
        fields: read("matchFields", Subject::Field),
    }
}

/// Reads a requirement (`ValidateNodeSelectorRequirement`,
/// `ValidateNodeFieldSelectorRequirement`).
pub(super) fn requirement(
    node: &Cursor<'_>,
    subject: Subject,
    problems: &mut Vec<Violation>,
) -> Option<NodeSelectorRequirement> {
    REQUIREMENT.check(node, problems);
    let key = required(node, "key", "", problems);
    if let (Some(key), Some(at)) = (&key, node.field("key")) {
        match subject {
            Subject::Label | Subject::PodLabel if !is_qualified_name(key) => {
                at.error(QUALIFIED_NAME, problems);
            }
            Subject::Field if key != NODE_NAME => at.unknown_value(&[NODE_NAME], problems),
            _ => {}
        }
    }
    let values = node.field("values").map(|values| values.string_list(problems)).unwrap_or_default();
    let written = list(node, "values", &mut Vec::new());
    for at in &written {
        let Some(value) = at.value().as_str() else { continue };
        match subject {
            Subject::Label | Subject::PodLabel if !is_label_value(value) => at.error(LABEL_VALUE, problems),
            Subject::Field if !is_dns_subdomain(value) => at.error(DNS_SUBDOMAIN, problems),
            _ => {}
        }
    }
    let operator = required(node, "operator", "not a valid selector operator", problems);
    let operator = operator.and(node.field("operator"))?.one_of(subject.operators(), problems)?;
    if node.field("values").is_none_or(|values| values.value().is_array()) {
        check_count(node, subject, (operator, written.len()), problems);
    }
    Some(NodeSelectorRequirement { key: key?, operator, values })
}

/// Reports a number of values that the operator of a requirement does not allow.
fn check_count(
    node: &Cursor<'_>,
    subject: Subject,
    (operator, count): (NodeSelectorOperator, usize),
    problems: &mut Vec<Violation>,
) {
    use NodeSelectorOperator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    let (is_allowed, detail) = match operator {
        In | NotIn if subject == Subject::Field => {
            (count == 1, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
        }
        In | NotIn => (count > 0, "must be specified when `operator` is 'In' or 'NotIn'"),
        Gt | Lt => (count == 1, "must be specified single value when `operator` is 'Lt' or 'Gt'"),
        Exists | DoesNotExist => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            if let Some(at) = node.field("values").filter(|_| count > 0) {
                at.forbidden(detail, problems);
            }
            return;
        }
    };
    if !is_allowed {
        node.missing("values", detail, problems);
    }
}
