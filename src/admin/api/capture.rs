//! JSON type of a capture.

use serde::{Deserialize, Serialize};

use super::{CallsQuery, is_false};

/// Query string of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureQuery {
    /// Duration of the capture in milliseconds, up to 24 hours.
    pub for_ms: u64,
    /// Whether arguments of commands are removed, even if probeshim does not redact them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub redact_commands: bool,
    /// Only calls of this method.
    pub method: Option<String>,
    /// Only calls about pods in this namespace.
    pub namespace: Option<String>,
    /// Only calls about this pod.
    pub pod: Option<String>,
    /// Only calls about this container.
    pub container: Option<String>,
    /// Only calls of this client.
    pub peer: Option<String>,
}

impl CaptureQuery {
    /// Returns the query for the calls of the capture.
    pub(in crate::admin) fn calls(&self) -> CallsQuery {
        let Self { method, namespace, pod, container, peer, .. } = self.clone();
        CallsQuery { method, namespace, pod, container, peer, ..CallsQuery::default() }
    }
}
