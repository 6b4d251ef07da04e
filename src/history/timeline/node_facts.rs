//! Facts about the node and probeshim that explain results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Facts about the node and probeshim that explain results. They hold since the start of probeshim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Time at which probeshim started, in RFC 3339.
    pub started: String,
    /// Name of the host.
    pub host: String,
    /// Version of probeshim.
    pub version: String,
    /// Number of processors that probeshim can use.
    pub processors: Option<usize>,
    /// Size of the memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Name and release of the kernel, such as `Linux 6.12.48`.
    pub kernel: String,
    /// Name and version of the runtime, such as `containerd v2.1.4`; `None` until it has answered.
    pub runtime: Option<String>,
    /// Settings that matter for results, by the names of their flags without dashes.
    pub settings: BTreeMap<String, String>,
}
