//! A pod as far as probing it is concerned: its containers, their probes, and what becomes of one that ends.

use std::collections::HashMap;
use std::sync::Arc;

use crate::manifest::exec_purpose::ExecPurpose;
use crate::manifest::probe::Hook;
use crate::manifest::probe::{Probe, ProbeType};

/// The variables that the kubelet expands in the commands of probes: those with a value in the spec. One that takes its value from
/// elsewhere is there, and empty.
pub type Env = HashMap<String, String>;

/// What the API server takes for the grace period of a pod that does not tell it, in seconds.
pub(crate) const GRACE_PERIOD: u32 = 30;

/// A pod, as somebody wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSpec {
    /// Whether its containers are started again when they end.
    pub restart_policy: RestartPolicy,
    /// Seconds that its containers have for their end; `None` where nobody says.
    pub termination_grace_period: Option<u32>,
    /// Somebody has deleted it: it is being ended.
    pub is_deleted: bool,
    /// Its containers: the regular ones in their order, then those that run before them.
    pub containers: Vec<Arc<ContainerSpec>>,
}

/// A container of a pod, as somebody wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Its name in the pod.
    pub name: String,
    /// When it runs.
    pub role: ContainerKind,
    /// The image that is asked for, where it is written.
    pub image: Option<String>,
    /// Whether it is started again when it ends, where that is said of this one.
    pub restart_policy: Option<RestartPolicy>,
    /// What is done at which exit code, before any policy counts.
    pub restart_rules: Vec<RestartRule>,
    /// Its ports.
    pub ports: Vec<ContainerPort>,
    /// Its variables.
    pub env: Env,
    /// Its probes, at most one of each type; `None` where it is said that there is none.
    pub probes: Vec<(ProbeType, Option<Arc<Probe>>)>,
    /// Its hooks, at most one of each kind.
    pub hooks: Vec<(ExecPurpose, Hook)>,
    /// Seconds that its pod gives it for its end, as the kubelet has noted at the container; or why that cannot be read.
    pub annotated_grace_period: Option<Result<u32, String>>,
}

/// When a container runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerKind {
    /// As long as the pod.
    #[default]
    Regular,
    /// From before the regular ones as long as they (an init container with `restartPolicy: Always`).
    Sidecar,
    /// Once, before the regular ones. It is never probed.
    Init,
    /// For a while, put there by somebody who looks around: the pod's spec does not know it. It is never probed.
    Ephemeral,
}

/// Whether a container is started again when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// It is.
    #[default]
    Always,
    /// It is if its exit code was not 0.
    OnFailure,
    /// It is not.
    Never,
}

/// What is done at some exit codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRule {
    /// Whether the codes are those at which it is done, or those at which it is not.
    pub is_in: bool,
    /// Exit codes.
    pub codes: Vec<i32>,
    /// Whether all containers of the pod are started again, or only this one.
    pub restarts_all: bool,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPort {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its number.
    pub number: u16,
}

impl ContainerKind {
    /// Whether a container of this kind is probed.
    #[must_use]
    pub fn is_probed(self) -> bool {
        matches!(self, Self::Regular | Self::Sidecar)
    }
}

impl PodSpec {
    /// The container of this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Arc<ContainerSpec>> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Whether any of its probes or hooks goes to the pod's address.
    #[must_use]
    pub fn needs_address(&self) -> bool {
        let needs = |container: &Arc<ContainerSpec>| {
            let mut probes = container.all_probes();
            probes.any(|(_, probe)| probe.handler.needs_address())
                || matches!(container.pre_stop(), Some(Hook::Http(get)) if get.host.is_none())
        };
        self.containers.iter().any(needs)
    }

    /// Whether any of its containers has a probe.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        self.containers.iter().any(|container| container.all_probes().next().is_some())
    }
}

impl ContainerSpec {
    /// A container of which nothing is written but its name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Its probe of a type, if it has one.
    #[must_use]
    pub fn probe(&self, probe_type: ProbeType) -> Option<&Arc<Probe>> {
        self.all_probes().find(|(known, _)| *known == probe_type).map(|(_, probe)| probe)
    }

    /// Its probes, as the kubelet orders them.
    pub fn all_probes(&self) -> impl Iterator<Item = (ProbeType, &Arc<Probe>)> {
        let written = |probe_type| self.probes.iter().find(move |(known, _)| *known == probe_type);
        ProbeType::ALL.into_iter().filter_map(move |kind| Some((kind, written(kind)?.1.as_ref()?)))
    }

    /// What is done before it is stopped, if anything is.
    #[must_use]
    pub fn pre_stop(&self) -> Option<&Hook> {
        self.hook(ExecPurpose::PreStop)
    }

    /// What is done after it has been started, if anything is.
    #[must_use]
    pub fn post_start(&self) -> Option<&Hook> {
        self.hook(ExecPurpose::PostStart)
    }

    fn hook(&self, kind: ExecPurpose) -> Option<&Hook> {
        self.hooks.iter().find(|(used, _)| *used == kind).map(|(_, hook)| hook)
    }

    /// Whether it is started again after this exit code (as the kubelet: rules, then its own policy, then the pod's).
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

    /// Whether this exit code makes all containers of the pod start again.
    #[must_use]
    pub fn restarts_all_containers(&self, exit_code: i32) -> bool {
        self.rule_at(exit_code).is_some_and(|rule| rule.restarts_all)
    }

    /// The first rule for an exit code. Without a policy of the container's own there are none.
    fn rule_at(&self, exit_code: i32) -> Option<&RestartRule> {
        self.restart_policy?;
        self.restart_rules.iter().find(|rule| rule.codes.contains(&exit_code) == rule.is_in)
    }
}

impl RestartPolicy {
    /// All of them, by their names.
    pub(crate) const NAMED: [(&'static str, Self); 3] =
        [("Always", Self::Always), ("OnFailure", Self::OnFailure), ("Never", Self::Never)];
}
