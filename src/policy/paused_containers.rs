//! The containers of a pause, and how it treats their probes.

use std::cmp::Ordering;
use std::sync::Arc;

use super::pause::{PauseStatus, PausedProbe, Pauses};
use crate::cri::v1::ContainerState;
use crate::inventory::{Container, Sandbox};
use crate::manifest::{Handler, Probe, ProbeType};
use crate::object_ref::PodRef;
use crate::probe::SpecResolver;

/// A running container that a pause selects.
#[derive(Clone, Debug, PartialEq)]
pub struct PausedContainer {
    /// The pod.
    pub pod: Arc<PodRef>,
    /// Name of the container, if it is known.
    pub container: Option<String>,
    /// Whether a source specifies the probes of the pod. If none does, each `ExecSync` of a kubelet
    /// with a timeout may be any probe.
    pub probes_known: bool,
    /// The known probes.
    pub probes: Vec<TreatedProbe>,
}

/// A probe of a container that a pause selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreatedProbe {
    /// Type of the probe.
    pub probe_type: ProbeType,
    /// Name of the handler's field: `exec`, `httpGet`, `tcpSocket` or `grpc`.
    pub handler: &'static str,
    /// How the probe is treated.
    pub treatment: ProbeTreatment,
}

/// How a pause treats a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTreatment {
    /// The probe of a client is executed, or answered in place of the runtime.
    Relayed(PausedProbe),
    /// The probe of a kubelet does not pass through the relay.
    NotRelayed,
    /// The probe is run by probeshim, which does not kill the container.
    KillHeld,
}

impl ProbeTreatment {
    /// Returns the name of the treatment in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Relayed(PausedProbe::Executed) => "executed",
            Self::Relayed(PausedProbe::Success) => "success",
            Self::Relayed(PausedProbe::Discarded) => "discarded",
            Self::NotRelayed => "not-relayed",
            Self::KillHeld => "kill-held",
        }
    }
}

impl Pauses {
    /// Returns the running containers that a pause selects, by namespace, pod and container.
    /// `is_managed` returns whether probeshim runs a pod and its probes.
    #[must_use]
    pub fn containers(
        &self,
        pause: &PauseStatus,
        is_managed: impl Fn(&PodRef) -> bool,
    ) -> Vec<PausedContainer> {
        let Some(node) = self.node() else { return Vec::new() };
        let (inventory, specs) = (node.inventory.borrow().clone(), node.specs.borrow().clone());
        let running = inventory.containers().filter_map(|container| {
            let is_running = container.state == ContainerState::ContainerRunning;
            let sandbox = inventory.sandbox_of(container).filter(|_| is_running)?;
            pause.selector.matches_container(sandbox, container).then_some((sandbox, container))
        });
        let mut found: Vec<PausedContainer> = running
            .map(|(sandbox, container)| {
                let readiness = pause.readiness || self.pauses_readiness(sandbox, container);
                paused(&specs, sandbox, container, is_managed(&sandbox.pod), readiness)
            })
            .collect();
        found.sort_by(by_name);
        found
    }
}

fn by_name(one: &PausedContainer, other: &PausedContainer) -> Ordering {
    let key = |it: &PausedContainer| (it.pod.namespace.clone(), it.pod.name.clone(), it.container.clone());
    key(one).cmp(&key(other))
}

fn paused(
    specs: &SpecResolver,
    sandbox: &Sandbox,
    container: &Arc<Container>,
    is_managed: bool,
    readiness: bool,
) -> PausedContainer {
    let name = container.container_ref.name.clone();
    let pod = specs.describe_pod(sandbox, [container]);
    let spec = name.as_deref().and_then(|name| pod.container(name));
    let probes: Vec<(ProbeType, &Arc<Probe>)> = spec.into_iter().flat_map(|spec| spec.all_probes()).collect();
    let treated = probes.iter().map(|(probe_type, probe)| TreatedProbe {
        probe_type: *probe_type,
        handler: probe.handler.name(),
        treatment: if is_managed {
            managed_treatment(*probe_type)
        } else {
            treatment(probe, &probes, readiness)
        },
    });
    PausedContainer {
        pod: sandbox.pod.clone(),
        container: name,
        probes_known: !probes.is_empty() || specs.source_of_pod(sandbox).is_some(),
        probes: treated.collect(),
    }
}

/// Returns how a probe of a client is treated. An exec may belong to several probes.
fn treatment(probe: &Probe, all: &[(ProbeType, &Arc<Probe>)], readiness: bool) -> ProbeTreatment {
    if !matches!(probe.handler, Handler::Exec(_)) {
        return ProbeTreatment::NotRelayed;
    }
    let is_same = |other: &Probe| other.handler == probe.handler && other.timeout == probe.timeout;
    let types = all.iter().filter(|(_, other)| is_same(other)).map(|(probe_type, _)| *probe_type);
    ProbeTreatment::Relayed(PausedProbe::for_types(&types.collect::<Vec<_>>(), readiness))
}

/// Returns how a probe that probeshim runs is treated.
fn managed_treatment(probe_type: ProbeType) -> ProbeTreatment {
    match probe_type {
        ProbeType::Readiness => ProbeTreatment::Relayed(PausedProbe::Executed),
        ProbeType::Liveness | ProbeType::Startup => ProbeTreatment::KillHeld,
    }
}
