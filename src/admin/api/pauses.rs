//! JSON of pauses, and of the limits of ExecSyncs.

use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use crate::history::json::time;
use crate::policy::{self, ExecSettings, PauseSelector, PauseStatus, Policies, TreatedProbe};
use crate::probe::Selector;

/// Body of a request that begins a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PauseBody {
    /// Name of the pause; null for a new one.
    #[serde(default)]
    pub name: Option<String>,
    /// The containers: `POD`, `NAMESPACE/POD` or `KEY=PATTERN,…`.
    pub selector: String,
    /// Lifetime of the pause in milliseconds.
    pub for_ms: u64,
    /// Whether readiness probes are paused too.
    #[serde(default)]
    pub readiness: bool,
    /// Whether the pause may select every container.
    #[serde(default)]
    pub all: bool,
}

/// Body of a request that ends pauses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeBody {
    /// Names of the pauses; empty for all.
    pub names: Vec<String>,
}

/// An active pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Name of the pause.
    pub name: String,
    /// The containers, in the form `KEY=PATTERN,…`; `*` for every container.
    pub selector: String,
    /// Whether readiness probes are paused too.
    pub readiness: bool,
    /// Time at which the pause ends.
    pub expires: String,
    /// Number of ExecSyncs that were answered in place of the runtime.
    pub answered: u64,
}

/// An active pause with the containers that it selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseReport {
    /// The pause.
    #[serde(flatten)]
    pub pause: Pause,
    /// The running containers that the pause selects now.
    pub containers: Vec<PausedContainer>,
}

/// A running container that a pause selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedContainer {
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
    /// Name of the container.
    pub container: Option<String>,
    /// Whether the probes are known. Otherwise each ExecSync of a kubelet with a timeout is
    /// discarded, because it may be any probe.
    pub probes_known: bool,
    /// The known probes.
    pub probes: Vec<PausedProbe>,
}

/// A probe of a container that a pause selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedProbe {
    /// Type of the probe: `startup`, `readiness` or `liveness`.
    pub r#type: String,
    /// Handler of the probe: `exec`, `httpGet`, `tcpSocket` or `grpc`.
    pub handler: String,
    /// `success`: answered with success. `discarded`: answered with UNAVAILABLE, which the kubelet
    /// discards. `executed`: not paused. `not-relayed`: a kubelet's probe that does not pass
    /// through probeshim. `kill-held`: run by probeshim, which does not kill the container.
    pub treatment: String,
}

/// Limits of concurrent ExecSyncs, and coalescing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecPolicies {
    /// Maximum number of ExecSyncs at the same time on the node; null without a limit.
    pub max_exec_syncs: Option<u32>,
    /// Maximum number of ExecSyncs at the same time in a container; null without a limit.
    pub max_exec_syncs_per_container: Option<u32>,
    /// Treatment of a call beyond a limit: `wait` or `fail`; null without a limit.
    pub exec_sync_overflow: Option<String>,
    /// Number of calls that wait because of a limit now.
    pub queued: u64,
    /// Whether probes with the same request share one call.
    pub coalesce_probes: bool,
    /// Number of calls that wait for the result of an identical one now.
    pub sharing: u64,
    /// Way in which ExecSyncs are executed: `runtime`, `direct` or `direct-all`.
    pub exec: String,
    /// Containers in which direct exec applies; null for all, and without direct exec.
    pub exec_match: Option<String>,
    /// The containers of which commands were to be executed without the runtime, sorted by id.
    pub direct_containers: Vec<DirectContainer>,
}

/// Verification of a container for direct exec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectContainer {
    /// Id of the container.
    pub id: String,
    /// `unverified`: no process of the runtime was recorded. `recorded`: no process of probeshim
    /// was compared with the record. `verified`: probeshim executes commands. `forwarded`: the
    /// runtime executes all commands.
    pub state: String,
    /// Number of attempts to record a process of the runtime, if the container is unverified.
    pub attempts: u32,
    /// Reason for which the runtime executes all commands, or for which the last command was
    /// neither recorded nor executed; null without one, and once the container is verified.
    pub reason: Option<String>,
}

impl ExecPolicies {
    /// Creates the JSON of the policies for `ExecSync`.
    pub(crate) fn new(policies: &Policies) -> Self {
        let (settings, [queued, sharing]) = (policies.exec(), policies.waiting());
        let ExecSettings { limits, coalesce_probes, direct } = settings;
        let overflow = limits.overflow.to_possible_value().map(|value| value.get_name().to_owned());
        let exec = direct.mode.to_possible_value().map(|value| value.get_name().to_owned());
        Self {
            max_exec_syncs: limits.node.map(Into::into),
            max_exec_syncs_per_container: limits.container.map(Into::into),
            exec_sync_overflow: overflow.filter(|_| limits.node.or(limits.container).is_some()),
            queued,
            coalesce_probes,
            sharing,
            exec: exec.unwrap_or_default(),
            direct_containers: policies.direct_containers().into_iter().map(DirectContainer::from).collect(),
            exec_match: (direct.selector != Selector::default()).then(|| direct.selector.to_string()),
        }
    }
}

impl From<policy::DirectContainer> for DirectContainer {
    fn from(container: policy::DirectContainer) -> Self {
        let policy::DirectContainer { id, state, attempts, reason } = container;
        Self { id: id.to_string(), state: state.to_owned(), attempts, reason }
    }
}

impl From<PauseStatus> for Pause {
    fn from(pause: PauseStatus) -> Self {
        let PauseStatus { name, selector, readiness, expires, answered } = pause;
        let selector = PauseSelector(selector).to_string();
        Self { name, selector, readiness, expires: time(expires), answered }
    }
}

impl From<policy::PausedContainer> for PausedContainer {
    fn from(paused: policy::PausedContainer) -> Self {
        let policy::PausedContainer { pod, container, probes_known, probes } = paused;
        let probes = probes.into_iter().map(PausedProbe::from).collect();
        let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
        Self { namespace, pod, container, probes_known, probes }
    }
}

impl From<TreatedProbe> for PausedProbe {
    fn from(probe: TreatedProbe) -> Self {
        let TreatedProbe { probe_type, handler, treatment } = probe;
        Self {
            r#type: probe_type.name().to_owned(),
            handler: handler.to_owned(),
            treatment: treatment.name().to_owned(),
        }
    }
}
