//! What the results amount to for containers and their pod, by the kubelet's rules.

use super::probe_state::ObservedState;
use super::threshold::ProbeResult;
use crate::manifest::{ContainerKind, ContainerSpec, PodSpec};

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Something has not been started yet.
    Pending,
    /// Something runs, or will again.
    Running,
    /// Everything has ended well.
    Succeeded,
    /// Everything has ended, something not well.
    Failed,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCondition {
    /// Its name: `ContainersReady` or `Ready`.
    pub kind: &'static str,
    /// Whether it is met.
    pub is_met: bool,
    /// Why not, in one word.
    pub reason: Option<&'static str>,
    /// Why not, in a sentence.
    pub message: Option<String>,
}

/// What of a container its status depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadinessInputs {
    pub(super) state: ObservedState,
    pub(super) role: ContainerKind,
    /// What its startup probe is held to say, if anything.
    pub(super) startup: Option<ProbeResult>,
    /// What its readiness probe is held to say, if anything.
    pub(super) readiness: Option<ProbeResult>,
    /// Whether it has been started already.
    pub(super) was_started: bool,
    /// Whether somebody probes it for that.
    pub(super) has_startup_worker: bool,
    pub(super) has_readiness_worker: bool,
}

impl ReadinessInputs {
    /// Whether the container has started.
    pub(super) fn is_started(&self) -> bool {
        if !matches!(self.state, ObservedState::Running(_)) {
            return false;
        }
        match self.startup {
            Some(result) => result == ProbeResult::Success,
            None => self.was_started || !self.has_startup_worker,
        }
    }

    /// Whether the container is ready; an init container is once it has ended well.
    pub(super) fn is_ready(&self) -> bool {
        if self.role == ContainerKind::Init {
            return self.state == ObservedState::Terminated(Some(0));
        }
        self.is_started() && (self.readiness == Some(ProbeResult::Success) || !self.has_readiness_worker)
    }

    /// Whether it is looked at again, out of its time, whether it is ready by now.
    pub(super) fn needs_readiness_trigger(&self) -> bool {
        self.is_started() && self.has_readiness_worker && self.readiness != Some(ProbeResult::Success)
    }
}

/// How far a container has come, as the phase of its pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerProgress {
    /// It has not been started.
    Waiting,
    /// It runs.
    Running {
        /// Its startup probe has succeeded, or there is none.
        is_started: bool,
    },
    /// It has ended, with this exit code where that is known.
    Ended(Option<i32>),
    /// It has ended with this exit code, and waits to be started again.
    BackOff(i32),
}

/// How far a pod has come whose containers have come so far. `is_terminal`: nothing of it will run any more.
pub(crate) fn phase(
    spec: &PodSpec,
    is_terminal: bool,
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
            ) => {
                has_failed_for_good |= code != 0 && !restarts(container, Some(code));
                initialising += usize::from(code != 0);
            }
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
            (ContainerKind::Regular, ContainerProgress::BackOff(_)) => {
                stopped += 1;
                restarting = true;
            }
        }
    }
    // Once a regular container has been started, what runs before them does not hold the pod back.
    let has_started = spec.containers.iter().any(|container| {
        container.role == ContainerKind::Regular && stage(&container.name) != ContainerProgress::Waiting
    });
    if has_failed_for_good && !has_started {
        PodPhase::Failed
    } else if !has_started && (initialising > 0 || sidecars_starting > 0) || waiting > 0 {
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

/// The conditions that tell whether a pod is ready: whether each of its containers is, in their order.
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
    /// Its name, as Kubernetes has it.
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

    /// Table 9.2, `UpdatePodStatus` and `UpdatePodStatusWithInitContainers`: whether it has started, and is ready.
    #[test]
    fn table_9_2_update_pod_status() {
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
    fn conditions_tell_which_containers_are_not_ready() {
        let [containers, pod] = readiness(PodPhase::Running, &[("a", false), ("b", true), ("c", false)]);
        assert_eq!((containers.kind, containers.is_met), ("ContainersReady", false));
        assert_eq!((containers.reason, pod.reason), (Some("ContainersNotReady"), Some("ContainersNotReady")));
        assert_eq!(pod.message.as_deref(), Some("containers with unready status: [a c]"));
        assert!(readiness(PodPhase::Running, &[("a", true)]).iter().all(|condition| condition.is_met));
        assert_eq!(readiness(PodPhase::Failed, &[])[1].reason, Some("PodFailed"));
    }

    #[test]
    fn a_pod_is_over_when_nothing_of_it_will_run_again() {
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
            let actual = phase(&spec(policy), false, |name| if name == "a" { a } else { b });
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
            let actual =
                phase(
                    &spec,
                    false,
                    |name| if name == "first" { ended(code) } else { ContainerProgress::Waiting },
                );
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
            let actual = phase(&spec, is_terminal, |name| if name == "side" { side } else { main });
            assert_eq!(actual, expected, "a sidecar {side:?} beside {main:?}");
        }
    }
}
