//! How a pod that is probed is, for those who ask.

use std::sync::Arc;

use super::pod::{PodState, ProbeWorker, ProbedContainer};
use super::status::{PodCondition, PodPhase, readiness};
use super::threshold::{ProbeResult, ResultRun};
use crate::manifest::{PodSpec, Probe, ProbeType};
use crate::object_ref::{ContainerRef, PodRef};
use crate::tap;

/// A pod.
#[derive(Clone, Debug)]
pub struct PodReport {
    /// Its names.
    pub names: Arc<PodRef>,
    /// What is written of it, by all sources.
    pub spec: Arc<PodSpec>,
    /// How far it has come.
    pub phase: PodPhase,
    /// `ContainersReady` and `Ready`.
    pub conditions: [PodCondition; 2],
    /// Its containers that are there.
    pub containers: Vec<ContainerReport>,
}

/// A container.
#[derive(Clone, Debug)]
pub struct ContainerReport {
    /// Its names.
    pub names: Arc<ContainerRef>,
    /// Whether it has started.
    pub is_started: bool,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Its probes, as the kubelet orders them.
    pub probes: Vec<ProbeReport>,
}

/// A probe.
#[derive(Clone, Debug)]
pub struct ProbeReport {
    /// What it is for.
    pub probe_type: ProbeType,
    /// What is made.
    pub probe: Arc<Probe>,
    /// What is held to be so, if anything is.
    pub result: Option<ProbeResult>,
    /// The last result, and how often it has come in a row.
    pub run: ResultRun,
    /// Nothing is probed until there is another container.
    pub on_hold: bool,
    /// How often this container would have been killed.
    pub would_have_killed: u32,
    /// How often it has had a container of this name killed.
    pub killed: u32,
    /// The last attempts that failed, in a row.
    pub failures: Vec<tap::ProbeFailure>,
}

impl PodReport {
    /// The container with this id.
    #[must_use]
    pub fn container(&self, id: &str) -> Option<&ContainerReport> {
        self.containers.iter().find(|container| container.names.id.as_deref() == Some(id))
    }
}

impl ContainerReport {
    /// Its probe of a type.
    #[must_use]
    pub fn probe(&self, probe_type: ProbeType) -> Option<&ProbeReport> {
        self.probes.iter().find(|probe| probe.probe_type == probe_type)
    }
}

impl PodState {
    /// How the pod is.
    pub(super) fn report(&self) -> PodReport {
        let phase = self.phase();
        let ready: Vec<(&str, bool)> = self
            .spec
            .containers
            .iter()
            .filter(|container| container.role.is_probed())
            .map(|container| {
                let place = self.index_by_name(&container.name);
                (container.name.as_str(), place.is_some_and(|place| self.readiness_inputs(place).is_ready()))
            })
            .collect();
        let container = |(place, container): (usize, &ProbedContainer)| {
            let basis = self.readiness_inputs(place);
            let of_it = |job: &&ProbeWorker| job.container == container.name();
            let mut probes: Vec<ProbeReport> =
                self.workers.iter().filter(of_it).map(|job| job.report(container)).collect();
            probes.sort_by_key(|probe| probe.probe_type);
            ContainerReport {
                names: container.names.clone(),
                is_started: basis.is_started(),
                is_ready: basis.is_ready(),
                probes,
            }
        };
        PodReport {
            names: self.names.clone(),
            spec: self.spec.clone(),
            phase,
            conditions: readiness(phase, &ready),
            containers: self.containers.iter().enumerate().map(container).collect(),
        }
    }
}

impl ProbeWorker {
    fn report(&self, container: &ProbedContainer) -> ProbeReport {
        let machine = &self.state;
        ProbeReport {
            probe_type: machine.probe_type,
            probe: machine.probe.clone(),
            result: container.result(machine.probe_type),
            run: machine.run,
            on_hold: machine.on_hold && container.is_running(),
            would_have_killed: container.would_have_ended(machine.probe_type),
            killed: self.kill_count,
            failures: self.last_failures(machine.probe.failure_threshold),
        }
    }
}
