//! Kill plans for containers whose liveness or startup probe has failed, as the kubelet makes them
//! (`kuberuntime/kuberuntime_manager.go`: `computePodActions`;
//! `kuberuntime/kuberuntime_container.go`: `setTerminationGracePeriod`).

use std::sync::Arc;

use super::enforcement::EnforcementMode;
use super::probe_state::ObservedState;
use crate::kill::{KillCause, KillPlan, message};
use crate::manifest::{ContainerKind, ContainerSpec, GRACE_PERIOD, Hook, PodSpec, ProbeType, RestartPolicy};

/// Returns the kill plan for a running container whose liveness or startup probe has failed.
/// `state` returns the states of the pod's containers. In the mode `kill` the message does not
/// promise a restart, which is up to others.
pub(super) fn plan_kill(
    mode: EnforcementMode,
    spec: &PodSpec,
    name: &str,
    probe_type: ProbeType,
    mut state: impl FnMut(&str) -> Option<ObservedState>,
) -> KillPlan {
    let container = spec.container(name);
    let own = container.and_then(|it| it.probe(probe_type)?.termination_grace_period);
    let noted = container.and_then(|it| it.annotated_grace_period.clone());
    let (noted, unreadable) = noted.map_or((None, None), |noted| (noted.clone().ok(), noted.err()));
    let of_pod = spec.termination_grace_period.or(noted);
    let pre_stop = container.and_then(|it| it.pre_stop());
    let blocked_by = match pre_stop {
        Some(Hook::Invalid(reason)) => Some(reason.clone()),
        _ => unreadable.filter(|_| of_pod.is_none()),
    };
    let of_pod = of_pod.unwrap_or(GRACE_PERIOD);
    let kill =
        |message, grace_period| KillPlan { message, grace_period, pre_stop: pre_stop.cloned(), blocked_by };
    if container.is_some_and(|it| it.role == ContainerKind::Sidecar) {
        return kill(
            message::init_container(name, KillCause::FailedProbe(probe_type)),
            own.unwrap_or(of_pod),
        );
    }
    // Restart rules do not count, because there is no exit code yet. OnFailure counts as a restart
    // (`shouldRestartOnFailure`).
    let policy = container.and_then(|it| it.restart_policy);
    if policy.unwrap_or(spec.restart_policy) != RestartPolicy::Never {
        let cause = KillCause::FailedProbe(probe_type);
        let message = match mode {
            EnforcementMode::Kill => message::killed(name, cause),
            _ => message::container(name, cause, true),
        };
        return kill(message, own.unwrap_or(of_pod));
    }
    let mut others =
        spec.containers.iter().filter(|other| other.role == ContainerKind::Regular && other.name != name);
    // A container that does not exist yet is about to be started, and a container that has ended
    // may be restarted.
    let goes_on = |other: &Arc<ContainerSpec>| match state(&other.name) {
        Some(ObservedState::Terminated(code)) => {
            code.is_none_or(|code| other.is_restarted(spec.restart_policy, code))
        }
        _ => true,
    };
    if others.any(goes_on) {
        let message = message::container(name, KillCause::FailedProbe(probe_type), false);
        return kill(message, own.unwrap_or(of_pod));
    }
    // No container of the pod remains, so the pod is killed as a whole. The grace period of the
    // probe does not count.
    kill(message::stopping(name), of_pod)
}

#[cfg(test)]
mod tests {

    use tokio::time::Instant;

    use super::*;
    use crate::manifest::{Probe, RestartRule};
    use crate::prober::probe_state::tests::probe;

    #[test]
    fn a_kill_plan_has_the_kubelets_message_and_grace_period() {
        let probe = |grace| Arc::new(Probe { termination_grace_period: grace, ..probe() });
        let of = |role, restart_policy, grace| ContainerSpec {
            role,
            restart_policy,
            probes: vec![(ProbeType::Liveness, Some(probe(grace)))],
            ..ContainerSpec::named("main")
        };
        let regular = |grace| of(ContainerKind::Regular, None, grace);
        let running = Some(ObservedState::Running(Instant::now()));
        let restarted = "Container main failed liveness probe, will be restarted";
        for (container, policy, sibling, expected) in [
            (regular(None), RestartPolicy::Always, None, (restarted, 40)),
            (regular(Some(5)), RestartPolicy::OnFailure, None, (restarted, 5)),
            (regular(Some(1)), RestartPolicy::Always, None, (restarted, 2)),
            (
                of(ContainerKind::Regular, Some(RestartPolicy::Always), None),
                RestartPolicy::Never,
                None,
                (restarted, 40),
            ),
            (regular(Some(5)), RestartPolicy::Never, None, ("Stopping container main", 40)),
            (
                of(ContainerKind::Regular, Some(RestartPolicy::Never), Some(5)),
                RestartPolicy::Always,
                None,
                ("Stopping container main", 40),
            ),
            (
                ContainerSpec {
                    restart_rules: vec![RestartRule { is_in: false, codes: [0].into(), restarts_all: false }],
                    ..regular(Some(5))
                },
                RestartPolicy::Never,
                None,
                ("Stopping container main", 40),
            ),
            (
                regular(Some(5)),
                RestartPolicy::Never,
                Some(running),
                ("Container main failed liveness probe", 5),
            ),
            (
                regular(Some(5)),
                RestartPolicy::Never,
                Some(Some(ObservedState::Terminated(Some(0)))),
                ("Stopping container main", 40),
            ),
            (
                of(ContainerKind::Sidecar, Some(RestartPolicy::Always), Some(500)),
                RestartPolicy::Never,
                Some(running),
                ("Init container main failed liveness probe", 500),
            ),
        ] {
            let mut containers = vec![Arc::new(container)];
            containers.extend(sibling.map(|_| Arc::new(ContainerSpec::named("other"))));
            let spec = PodSpec {
                restart_policy: policy,
                termination_grace_period: Some(40),
                containers,
                ..PodSpec::default()
            };
            let kill = plan_kill(EnforcementMode::Restart, &spec, "main", ProbeType::Liveness, |_| {
                sibling.flatten()
            });
            let actual = (kill.message.as_str(), KillPlan::stop_timeout(kill.grace_period));
            assert_eq!(actual, expected, "{policy:?}");
        }
    }
}
