//! The part of a pod's spec that matters for probing: containers, probes, hooks and restarts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::manifest::exec_purpose::ExecPurpose;
use crate::manifest::probe::Hook;
use crate::manifest::probe::{Probe, ProbeType};

/// Variables that the kubelet expands in the commands of probes, by name. A variable whose value is
/// not in the spec is present with an empty value.
pub type Env = HashMap<String, String>;

/// Default grace period of a pod in seconds, as the API server sets it.
pub(crate) const GRACE_PERIOD: u32 = 30;

/// Spec of a pod, as its source specifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSpec {
    /// Whether containers are restarted after they end.
    pub restart_policy: RestartPolicy,
    /// Grace period in seconds; `None` if no source specifies it.
    pub termination_grace_period: Option<u32>,
    /// Whether the pod is being deleted.
    pub is_deleted: bool,
    /// Regular containers in their order, followed by init containers and sidecars.
    pub containers: Vec<Arc<ContainerSpec>>,
}

/// Spec of a container, as its source specifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Name in the pod.
    pub name: String,
    /// Kind of the container.
    pub role: ContainerKind,
    /// Requested image, if the source specifies it.
    pub image: Option<String>,
    /// Restart policy of the container, which overrides that of the pod.
    pub restart_policy: Option<RestartPolicy>,
    /// Rules for exit codes, which take precedence over restart policies.
    pub restart_rules: Vec<RestartRule>,
    /// Ports of the container.
    pub ports: Vec<ContainerPort>,
    /// Variables of the container.
    pub env: Env,
    /// Probes, at most one of each type; `None` if the source turns the probe off.
    pub probes: Vec<(ProbeType, Option<Arc<Probe>>)>,
    /// Hooks, at most one of each kind.
    pub hooks: Vec<(ExecPurpose, Hook)>,
    /// Grace period of the pod in seconds, from the annotation
    /// `io.kubernetes.pod.terminationGracePeriod` that the kubelet writes on each container; or the
    /// reason why it cannot be read.
    pub annotated_grace_period: Option<Result<u32, String>>,
}

/// Kind of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerKind {
    /// Runs as long as the pod.
    #[default]
    Regular,
    /// Starts before the regular containers and runs as long as they do: an init container with
    /// `restartPolicy: Always`.
    Sidecar,
    /// Runs once, before the regular containers. It is never probed.
    Init,
    /// Is added to a running pod for debugging, and is not in the spec of the pod. It is never
    /// probed.
    Ephemeral,
}

/// Whether a container is restarted after it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Always restarted.
    #[default]
    Always,
    /// Restarted if its exit code is not 0.
    OnFailure,
    /// Never restarted.
    Never,
}

/// An action for certain exit codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRule {
    /// Whether the rule applies to `codes` (`In`) or to all other codes (`NotIn`).
    pub is_in: bool,
    /// Exit codes.
    pub codes: Vec<i32>,
    /// Whether all containers of the pod are restarted, or only this one.
    pub restarts_all: bool,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPort {
    /// Name, if the port has one.
    pub name: Option<String>,
    /// Number, from 1.
    pub number: u16,
}

impl ContainerKind {
    /// Returns whether containers of this kind are probed.
    #[must_use]
    pub fn is_probed(self) -> bool {
        matches!(self, Self::Regular | Self::Sidecar)
    }
}

impl PodSpec {
    /// Returns the container with this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Arc<ContainerSpec>> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Returns whether a probe or preStop hook connects to the address of the pod.
    #[must_use]
    pub fn needs_address(&self) -> bool {
        let needs = |container: &Arc<ContainerSpec>| {
            let mut probes = container.all_probes();
            probes.any(|(_, probe)| probe.handler.needs_address())
                || matches!(container.pre_stop(), Some(Hook::Http(get)) if get.host.is_none())
        };
        self.containers.iter().any(needs)
    }

    /// Returns whether a container of the pod has a probe.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        self.containers.iter().any(|container| container.all_probes().next().is_some())
    }
}

impl ContainerSpec {
    /// Returns the spec of a container of which only the name is known.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns the probe of a type, if the container has one.
    #[must_use]
    pub fn probe(&self, probe_type: ProbeType) -> Option<&Arc<Probe>> {
        self.all_probes().find(|(known, _)| *known == probe_type).map(|(_, probe)| probe)
    }

    /// Returns the probes in the order in which the kubelet handles them.
    pub fn all_probes(&self) -> impl Iterator<Item = (ProbeType, &Arc<Probe>)> {
        let written = |probe_type| self.probes.iter().find(move |(known, _)| *known == probe_type);
        ProbeType::ALL.into_iter().filter_map(move |kind| Some((kind, written(kind)?.1.as_ref()?)))
    }

    /// Returns the preStop hook.
    #[must_use]
    pub fn pre_stop(&self) -> Option<&Hook> {
        self.hook(ExecPurpose::PreStop)
    }

    /// Returns the postStart hook.
    #[must_use]
    pub fn post_start(&self) -> Option<&Hook> {
        self.hook(ExecPurpose::PostStart)
    }

    fn hook(&self, kind: ExecPurpose) -> Option<&Hook> {
        self.hooks.iter().find(|(used, _)| *used == kind).map(|(_, hook)| hook)
    }

    /// Returns whether the container is restarted after it ended with this exit code. As in the
    /// kubelet, rules take precedence over the policy of the container, and that over the policy of
    /// the pod.
    #[must_use]
    pub fn is_restarted(&self, of_pod: RestartPolicy, exit_code: i32) -> bool {
        if self.role == ContainerKind::Sidecar || self.rule_at(exit_code).is_some() {
            return true;
        }
        match self.restart_policy.unwrap_or(of_pod) {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        }
    }

    /// Returns whether this exit code restarts all containers of the pod.
    #[must_use]
    pub fn restarts_all_containers(&self, exit_code: i32) -> bool {
        self.rule_at(exit_code).is_some_and(|rule| rule.restarts_all)
    }

    /// Returns the first rule for an exit code. Rules apply only if the container has a restart
    /// policy.
    fn rule_at(&self, exit_code: i32) -> Option<&RestartRule> {
        self.restart_policy?;
        self.restart_rules.iter().find(|rule| rule.codes.contains(&exit_code) == rule.is_in)
    }
}

impl RestartPolicy {
    /// All policies, by name.
    pub(crate) const NAMED: [(&'static str, Self); 3] =
        [("Always", Self::Always), ("OnFailure", Self::OnFailure), ("Never", Self::Never)];
}
