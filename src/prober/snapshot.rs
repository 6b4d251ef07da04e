//! Reports about pods that are probed.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::pod::{AttemptRun, PodState, ProbeWorker, ProbedContainer};
use super::status::{PodCondition, PodPhase, readiness};
use super::threshold::{ProbeResult, ResultRun};
use crate::manifest::{PodSpec, Probe, ProbeType};
use crate::object_ref::{ContainerRef, PodRef};
use crate::tap;

/// State of a pod.
#[derive(Clone, Debug)]
pub struct PodReport {
    /// Names of the pod.
    pub names: Arc<PodRef>,
    /// Specification of the pod, merged from all sources.
    pub spec: Arc<PodSpec>,
    /// Phase of the pod.
    pub phase: PodPhase,
    /// Conditions `ContainersReady` and `Ready`.
    pub conditions: [PodCondition; 2],
    /// Containers of the pod that exist.
    pub containers: Vec<ContainerReport>,
}

/// State of a container.
#[derive(Clone, Debug)]
pub struct ContainerReport {
    /// Names of the container.
    pub names: Arc<ContainerRef>,
    /// Whether the container has started.
    pub is_started: bool,
    /// Whether the container is ready.
    pub is_ready: bool,
    /// Probes of the container, in the kubelet's order.
    pub probes: Vec<ProbeReport>,
}

/// State of a probe.
#[derive(Clone, Debug)]
pub struct ProbeReport {
    /// Type of the probe.
    pub probe_type: ProbeType,
    /// Specification of the probe.
    pub probe: Arc<Probe>,
    /// Probe result, once there is one.
    pub result: Option<ProbeResult>,
    /// Result run of the probe.
    pub run: ResultRun,
    /// Last attempts in this container that have equal outcomes, once there has been one.
    pub attempts: Option<AttemptRun>,
    /// Time at which the attempt that is being made in this container began; `None` between
    /// attempts.
    pub running_since: Option<SystemTime>,
    /// Whether no attempts are made until the container is replaced.
    pub on_hold: bool,
    /// Reason for which the container is not killed although the probe has failed: it, or its pod,
    /// is being stopped or may be.
    pub hold_reason: Option<String>,
    /// Number of would-be kills of this container for the probe.
    pub would_have_killed: u32,
    /// Number of kills of containers of this name for the probe.
    pub killed: u32,
    /// Last failed attempts in a row, at most as many as the failure threshold.
    pub failures: Vec<tap::ProbeFailure>,
}

impl PodReport {
    /// Returns the container with this ID.
    #[must_use]
    pub fn container(&self, id: &str) -> Option<&ContainerReport> {
        self.containers.iter().find(|container| container.names.id.as_deref() == Some(id))
    }
}

impl ContainerReport {
    /// Returns the probe of this type.
    #[must_use]
    pub fn probe(&self, probe_type: ProbeType) -> Option<&ProbeReport> {
        self.probes.iter().find(|probe| probe.probe_type == probe_type)
    }
}

impl PodState {
    /// Returns the state of the pod.
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
                self.workers.iter().filter(of_it).map(|job| self.probe_report(job, place)).collect();
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

impl PodState {
    /// Returns the state of a probe of the container with this index.
    fn probe_report(&self, worker: &ProbeWorker, index: usize) -> ProbeReport {
        let (machine, container) = (&worker.state, &self.containers[index]);
        let result = container.result(machine.probe_type);
        let on_hold = machine.on_hold && container.is_running();
        let is_held = on_hold && result == Some(ProbeResult::Failure);
        ProbeReport {
            probe_type: machine.probe_type,
            probe: machine.probe.clone(),
            result,
            run: machine.run,
            attempts: worker.attempts.clone().filter(|attempts| attempts.is_about(&container.id)),
            running_since: worker.attempt_in_flight.as_ref().and_then(|it| it.since_in(&container.id)),
            on_hold,
            hold_reason: is_held.then(|| self.hold_reason(index, Instant::now())).flatten(),
            would_have_killed: container.would_have_ended(machine.probe_type),
            killed: worker.kill_count,
            failures: worker.last_failures(machine.probe.failure_threshold),
        }
    }
}
