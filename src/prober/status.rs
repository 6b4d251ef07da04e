//! Readiness of containers, and phase and conditions of pods, by the kubelet's rules
//! (`prober_manager.go`: `UpdatePodStatus`; `kubelet_pods.go`: `getPhase`).

use super::probe_state::ObservedState;
use super::threshold::ProbeResult;
use crate::manifest::{ContainerKind, ContainerSpec, PodSpec};

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// A container has not been started yet.
    Pending,
    /// A container runs, or will run again.
    Running,
    /// All containers have ended successfully.
    Succeeded,
    /// All containers have ended, and at least one has failed.
    Failed,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCondition {
    /// Name of the condition: `ContainersReady` or `Ready`.
    pub kind: &'static str,
    /// Whether the condition is met.
    pub is_met: bool,
    /// Reason in one word, if the condition is not met.
    pub reason: Option<&'static str>,
    /// Message, if the condition is not met.
    pub message: Option<String>,
}

/// Inputs that determine the status of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadinessInputs {
    pub(super) state: ObservedState,
    pub(super) role: ContainerKind,
    /// Result of the startup probe, if there is one.
    pub(super) startup: Option<ProbeResult>,
    /// Result of the readiness probe, if there is one.
    pub(super) readiness: Option<ProbeResult>,
    /// Whether the container had started at an earlier sync, or is assumed to have started.
    pub(super) was_started: bool,
    /// Whether a worker runs the startup probe.
    pub(super) has_startup_worker: bool,
    /// Whether a worker runs the readiness probe.
    pub(super) has_readiness_worker: bool,
}

impl ReadinessInputs {
    /// Returns whether the container has started.
    pub(super) fn is_started(&self) -> bool {
        if !matches!(self.state, ObservedState::Running(_)) {
            return false;
        }
        match self.startup {
            Some(result) => result == ProbeResult::Success,
            None => self.was_started || !self.has_startup_worker,
        }
    }

    /// Returns whether the container is ready. An init container is ready once it has ended
    /// successfully.
    pub(super) fn is_ready(&self) -> bool {
        if self.role == ContainerKind::Init {
            return self.state == ObservedState::Terminated(Some(0));
        }
        self.is_started() && (self.readiness == Some(ProbeResult::Success) || !self.has_readiness_worker)
    }

    /// Returns whether the readiness probe is to be triggered outside its period, because the
    /// container is not ready yet.
    pub(super) fn needs_readiness_trigger(&self) -> bool {
        self.is_started() && self.has_readiness_worker && self.readiness != Some(ProbeResult::Success)
    }
}

/// Progress of a container, as far as the phase of its pod depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerProgress {
    /// The container has not been started.
    Waiting,
    /// The container runs.
    Running {
        /// Whether the startup probe has succeeded or the container has none.
        is_started: bool,
    },
    /// The container has ended with this exit code; `None` if the code is not known.
    Ended(Option<i32>),
    /// The container has ended with this exit code and waits for its next start.
    BackOff(i32),
    /// The container was removed because all containers are restarted.
    RestartingAll,
}

/// Returns the phase of a pod from the progress of its containers (`kubelet_pods.go`: `getPhase`).
/// `is_terminal`: no container of the pod will run again. `has_initialized`: the newest sandbox is
/// ready and has a regular container (`container/helpers.go`:
/// `HasAnyActiveRegularContainerStarted`).
pub(crate) fn phase(
    spec: &PodSpec,
    is_terminal: bool,
    has_initialized: bool,
    stage: impl Fn(&str) -> ContainerProgress,
) -> PodPhase {
    let restarts = |container: &ContainerSpec, code: Option<i32>| {
        code.is_none_or(|code| container.is_restarted(spec.restart_policy, code))
    };
    let (mut initialising, mut sidecars_starting, mut has_failed_for_good) = (0, 0, false);
    let (mut waiting, mut running, mut stopped, mut succeeded, mut restarting) = (0, 0, 0, 0, false);
    for container in &spec.containers {
        match (container.role, stage(&container.name)) {
            (
                ContainerKind::Init,
                ContainerProgress::Ended(Some(code)) | ContainerProgress::BackOff(code),
            ) => has_failed_for_good |= code != 0 && !restarts(container, Some(code)),
            (ContainerKind::Init, ContainerProgress::RestartingAll) => {}
            (ContainerKind::Init, _) => initialising += 1,
            (ContainerKind::Sidecar, ContainerProgress::Running { is_started }) => {
                running += 1;
                sidecars_starting += usize::from(!is_started);
            }
            (ContainerKind::Sidecar, ContainerProgress::Waiting) => {
                waiting += 1;
                sidecars_starting += 1;
            }
            (ContainerKind::Sidecar | ContainerKind::Ephemeral, _) => {}
            (ContainerKind::Regular, ContainerProgress::Waiting) => waiting += 1,
            (ContainerKind::Regular, ContainerProgress::Running { .. }) => running += 1,
            (ContainerKind::Regular, ContainerProgress::Ended(code)) => {
                stopped += 1;
                succeeded += usize::from(code == Some(0));
                restarting |= restarts(container, code);
            }
            (ContainerKind::Regular, ContainerProgress::BackOff(code)) => {
                stopped += 1;
                restarting |= restarts(container, Some(code));
            }
            (ContainerKind::Regular, ContainerProgress::RestartingAll) => {
                stopped += 1;
                restarting = true;
            }
        }
    }
    if has_failed_for_good {
        PodPhase::Failed
    } else if initialising > 0 || sidecars_starting > 0 && !has_initialized || waiting > 0 {
        PodPhase::Pending
    } else if running > 0 {
        PodPhase::Running
    } else if stopped == 0 {
        PodPhase::Pending
    } else if is_terminal {
        if stopped == succeeded { PodPhase::Succeeded } else { PodPhase::Failed }
    } else if restarting {
        PodPhase::Running
    } else if stopped == succeeded {
        PodPhase::Succeeded
    } else {
        PodPhase::Failed
    }
}

/// Returns the readiness conditions of a pod (`status/generate.go`:
/// `GenerateContainersReadyCondition`, `GeneratePodReadyCondition`). `containers` has the name and
/// the readiness of each container, in their order.
pub(crate) fn readiness(phase: PodPhase, containers: &[(&str, bool)]) -> [PodCondition; 2] {
    let unready: Vec<&str> =
        containers.iter().filter(|(_, is_ready)| !is_ready).map(|(name, _)| *name).collect();
    let (reason, message) = match phase {
        PodPhase::Succeeded => (Some("PodCompleted"), None),
        PodPhase::Failed => (Some("PodFailed"), None),
        _ if unready.is_empty() => (None, None),
        _ => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (Some("ContainersNotReady"), Some(message))
        }
    };
    ["ContainersReady", "Ready"].map(|kind| PodCondition {
        kind,
        is_met: reason.is_none(),
        reason,
        message: message.clone(),
    })
}

impl PodPhase {
    /// Returns the name of the phase in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::manifest::RestartPolicy;

    fn basis(state: ObservedState) -> ReadinessInputs {
        ReadinessInputs {
            state,
            role: ContainerKind::Regular,
            startup: None,
            readiness: None,
            was_started: false,
            has_startup_worker: false,
            has_readiness_worker: false,
        }
    }

    /// Repeats `TestUpdatePodStatus` and `TestUpdatePodStatusWithInitContainers`
    /// (`prober_manager_test.go`).
    #[test]
    fn upstream_test_update_pod_status() {
        use ProbeResult::{Failure, Success};
        let running = basis(ObservedState::Running(Instant::now()));
        let readiness = |readiness| ReadinessInputs { readiness, has_readiness_worker: true, ..running };
        let startup = |startup| ReadinessInputs { startup, has_startup_worker: true, ..running };
        let (ended, waiting) = (basis(ObservedState::Terminated(Some(0))), basis(ObservedState::Waiting));
        let of = |role, basis: ReadinessInputs| ReadinessInputs { role, ..basis };
        for (row, basis, expected) in [
            ("unprobed", running, (true, true)),
            ("readiness Success", readiness(Some(Success)), (true, true)),
            ("readiness pending", readiness(None), (true, false)),
            ("readiness Failure", readiness(Some(Failure)), (true, false)),
            ("startup pending", startup(None), (false, false)),
            ("startup Success without readiness", startup(Some(Success)), (true, true)),
            (
                "terminated with stale Success",
                ReadinessInputs { readiness: Some(Success), ..ended },
                (false, false),
            ),
            ("ordinary: not started", of(ContainerKind::Init, waiting), (false, false)),
            ("ordinary: started", of(ContainerKind::Init, running), (true, false)),
            ("ordinary: terminated(0)", of(ContainerKind::Init, ended), (false, true)),
            ("sidecar: not started", of(ContainerKind::Sidecar, waiting), (false, false)),
            ("sidecar: started", of(ContainerKind::Sidecar, running), (true, true)),
            ("sidecar: terminated(0)", of(ContainerKind::Sidecar, ended), (false, false)),
            (
                "8.1: started before there was a result",
                ReadinessInputs { was_started: true, ..startup(None) },
                (true, true),
            ),
        ] {
            assert_eq!((basis.is_started(), basis.is_ready()), expected, "{row}");
        }
        assert!(
            readiness(None).needs_readiness_trigger() && !readiness(Some(Success)).needs_readiness_trigger()
        );
    }

    #[test]
    fn pod_conditions_list_the_unready_containers() {
        let [containers, pod] = readiness(PodPhase::Running, &[("a", false), ("b", true), ("c", false)]);
        assert_eq!((containers.kind, containers.is_met), ("ContainersReady", false));
        assert_eq!((containers.reason, pod.reason), (Some("ContainersNotReady"), Some("ContainersNotReady")));
        assert_eq!(pod.message.as_deref(), Some("containers with unready status: [a c]"));
        assert!(readiness(PodPhase::Running, &[("a", true)]).iter().all(|condition| condition.is_met));
        assert_eq!(readiness(PodPhase::Failed, &[])[1].reason, Some("PodFailed"));
    }

    #[test]
    fn the_pod_phase_is_final_once_no_container_will_run_again() {
        use crate::manifest::ContainerSpec;
        let spec = |restart_policy| PodSpec {
            restart_policy,
            containers: ["a", "b"].map(|name| ContainerSpec::named(name).into()).into(),
            ..PodSpec::default()
        };
        let ended = |code| ContainerProgress::Ended(Some(code));
        let running = ContainerProgress::Running { is_started: true };
        for (policy, a, b, expected) in [
            (RestartPolicy::Always, ContainerProgress::Waiting, running, PodPhase::Pending),
            (RestartPolicy::Never, ended(1), running, PodPhase::Running),
            (RestartPolicy::Always, ended(0), ended(0), PodPhase::Running),
            (RestartPolicy::OnFailure, ended(0), ended(1), PodPhase::Running),
            (RestartPolicy::OnFailure, ended(0), ended(0), PodPhase::Succeeded),
            (RestartPolicy::Never, ended(0), ended(1), PodPhase::Failed),
            (RestartPolicy::OnFailure, ContainerProgress::BackOff(1), ended(0), PodPhase::Running),
            (RestartPolicy::Never, ended(0), ContainerProgress::Ended(None), PodPhase::Running),
        ] {
            let actual = phase(&spec(policy), false, true, |name| if name == "a" { a } else { b });
            assert_eq!(actual, expected, "{policy:?} {a:?} {b:?}");
        }
        let first = ContainerSpec { role: ContainerKind::Init, ..ContainerSpec::named("first") };
        for (policy, code, expected) in [
            (RestartPolicy::Never, 1, PodPhase::Failed),
            (RestartPolicy::Never, 0, PodPhase::Pending),
            (RestartPolicy::OnFailure, 1, PodPhase::Pending),
        ] {
            let mut spec = spec(policy);
            spec.containers.push(first.clone().into());
            let stage = |name: &str| if name == "first" { ended(code) } else { ContainerProgress::Waiting };
            let actual = phase(&spec, false, false, stage);
            assert_eq!(actual, expected, "{policy:?}, and the first one has ended with {code}");
        }
        let mut spec = spec(RestartPolicy::Never);
        spec.containers
            .push(ContainerSpec { role: ContainerKind::Sidecar, ..ContainerSpec::named("side") }.into());
        for (side, main, is_terminal, expected) in [
            (
                ContainerProgress::Running { is_started: false },
                ContainerProgress::Waiting,
                false,
                PodPhase::Pending,
            ),
            (ContainerProgress::Running { is_started: false }, running, false, PodPhase::Running),
            (running, ended(0), false, PodPhase::Running),
            (ended(137), ended(0), false, PodPhase::Succeeded),
            (ended(0), ended(3), true, PodPhase::Failed),
        ] {
            let has_initialized = main != ContainerProgress::Waiting;
            let stage = |name: &str| if name == "side" { side } else { main };
            let actual = phase(&spec, is_terminal, has_initialized, stage);
            assert_eq!(actual, expected, "a sidecar {side:?} next to {main:?}");
        }
    }

    /// Regular containers of an earlier sandbox neither keep the pod running nor protect it from
    /// its init containers, which run again in the new sandbox.
    #[test]
    fn init_containers_in_a_new_sandbox_determine_the_pod_phase_again() {
        let spec = |policy| PodSpec {
            restart_policy: RestartPolicy::Always,
            containers: [
                ContainerSpec {
                    role: ContainerKind::Init,
                    restart_policy: policy,
                    ..ContainerSpec::named("init")
                },
                ContainerSpec { role: ContainerKind::Sidecar, ..ContainerSpec::named("side") },
                ContainerSpec::named("main"),
            ]
            .map(Into::into)
            .into(),
            ..PodSpec::default()
        };
        let ended = |code| ContainerProgress::Ended(Some(code));
        let running = |is_started| ContainerProgress::Running { is_started };
        let never = Some(RestartPolicy::Never);
        for (policy, init, side, has_initialized, expected) in [
            (never, ended(1), ended(137), false, PodPhase::Failed),
            (never, ended(1), running(true), true, PodPhase::Failed),
            (None, ended(1), ended(137), false, PodPhase::Running),
            (None, running(true), ended(137), false, PodPhase::Pending),
            (None, ContainerProgress::Waiting, ended(137), false, PodPhase::Pending),
            (None, ended(0), running(false), false, PodPhase::Pending),
            (None, ended(0), running(true), false, PodPhase::Running),
            (None, ended(0), running(false), true, PodPhase::Running),
        ] {
            let stage = |name: &str| match name {
                "init" => init,
                "side" => side,
                _ => ended(137),
            };
            let actual = phase(&spec(policy), false, has_initialized, stage);
            assert_eq!(actual, expected, "{policy:?}: {init:?}, {side:?}, {has_initialized}");
        }
    }
}
