//! Placement of a pod: the rules that the node must satisfy.

use crate::manifest::pod::StringMap;

/// The rules that the node of a pod must satisfy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placement {
    /// Whether the pod is for Windows.
    pub(crate) is_windows: bool,
    /// Labels that the node must have (`nodeSelector`).
    pub(crate) node_selector: StringMap,
    /// Terms of which the node must match one; `None` if the pod has no required node affinity.
    pub(crate) node_affinity: Option<Vec<NodeSelectorTerm>>,
}

/// Requirements that the node must satisfy all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeSelectorTerm {
    /// Requirements of labels of the node (`matchExpressions`).
    pub(crate) labels: Vec<NodeSelectorRequirement>,
    /// Requirements of fields of the node, of which `metadata.name` is the only one
    /// (`matchFields`).
    pub(crate) fields: Vec<NodeSelectorRequirement>,
}

/// Requirement of a label or a field of the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeSelectorRequirement {
    pub(crate) key: String,
    pub(crate) operator: NodeSelectorOperator,
    pub(crate) values: Vec<String>,
}

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeSelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}
