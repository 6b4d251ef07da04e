//! Stops containers as the kubelet does: one because of a probe or a change, or all of a pod in
//! their termination order (kubelet: `kuberuntime_container.go`: `killContainer`,
//! `killContainersWithSyncResult`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::error;

use super::PodWorker;
use super::compute_actions::{ContainerToKill, KillReason};
use crate::cri::v1::{RemoveContainerRequest, StopPodSandboxRequest};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, ignore_not_found, with_timeout};
use crate::gofmt::{aggregate, quote, rpc_error};
use crate::handler::{ContainerNames, HookContext};
use crate::kill::{KillAttempt, KillPlan, KillResult, message};
use crate::kubelet::cri_config;
use crate::kubelet::logs::remove_log;
use crate::kubelet::runtime_status::{ContainerInstance, RuntimePodStatus};
use crate::manifest::pod::{Container, Pod, PodOrigin};
use crate::manifest::{ContainerKind, ContainerSpec, GRACE_PERIOD, Probe, ProbeType};
use crate::object_ref::ContainerRef;
use crate::prober::{PodReport, ProbeReport};
use crate::tap;
use crate::terminal::sanitize;

/// Tokens that are cancelled when a container has ended, by container names (kubelet:
/// `terminationOrdering`).
type TerminationOrder = HashMap<String, CancellationToken>;

/// Override and minimum of the grace periods of a pod's containers, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GracePeriodRules {
    /// Replaces the pod's own grace period.
    pub(super) override_seconds: Option<u32>,
    pub(super) minimum: u32,
}

/// Errors of the containers and sandboxes of a pod that were not stopped. The text is the kubelet's
/// (`container/sync_result.go`: `PodSyncResult`).
#[derive(Debug, thiserror::Error)]
#[error("{}", aggregate(.0))]
pub(super) struct KillPodError(Vec<String>);

/// Returns the error of an action on a container or sandbox.
fn kill_error(action: &str, target: &str, status: &Status) -> String {
    let error = quote(&sanitize(&rpc_error(status)));
    format!("failed to \"{action}\" for \"{target}\" with {action}Error: {error}")
}

impl GracePeriodRules {
    fn apply(self, of_pod: u32) -> u32 {
        self.override_seconds.unwrap_or(of_pod).max(self.minimum)
    }
}

impl PodWorker {
    /// Returns the kill plan of a container, with the pod's grace period.
    pub(super) fn kill_spec(&self, container: &Container, message: String) -> KillPlan {
        let grace_period = self.pod.spec.termination_grace_period.unwrap_or(GRACE_PERIOD);
        KillPlan { message, grace_period, pre_stop: container.spec.pre_stop().cloned(), blocked_by: None }
    }

    /// Kills one container of the pod actions, and reports the kill to the prober.
    pub(super) async fn kill_container(
        &self,
        to_kill: &ContainerToKill,
        runtime_status: &RuntimePodStatus,
        report: Option<&PodReport>,
    ) -> Result<(), Status> {
        let ContainerToKill { id, name, message, reason } = to_kill;
        let Some(container) = self.pod.container(name) else { return Ok(()) };
        let mut ending = self.kill_spec(container, message.clone());
        let mut mark = None;
        ending.grace_period = grace_period(ending.grace_period, *reason, |kind| {
            Some(report?.container(id)?.probe(kind)?.probe.clone())
        });
        if let KillReason::Probe(kind) = reason {
            let probe = report.and_then(|it| it.container(id)?.probe(*kind));
            mark = probe.map(|probe| kill_record(probe, &ending));
        }
        // After a crash, the next probeshim must know why the container ended.
        self.context.stores.state.flush().await;
        let killed = self.kill(&names(runtime_status, id, name), id, ending, mark, &[]).await;
        if let (KillReason::Probe(kind), Some(prober)) = (reason, &self.context.prober) {
            prober.on_container_killed(&self.names, name, *kind, killed.is_ok());
        }
        killed
    }

    /// Stops a container after its predecessors have ended.
    pub(super) async fn kill(
        &self,
        names: &Arc<ContainerRef>,
        id: &Arc<str>,
        plan: KillPlan,
        record: Option<tap::KillRecord>,
        predecessors: &[CancellationToken],
    ) -> Result<(), Status> {
        let name = names.name.as_deref().unwrap_or_default();
        let container = self.pod.container(name).map(|container| container.spec.clone());
        let container = container.unwrap_or_else(|| Arc::new(ContainerSpec::named(name)));
        let attempt = KillAttempt {
            executor: &self.context.executor,
            events: &self.context.events,
            container: self.hook_context(&container, names, id, &self.sandbox_address()),
            plan: &plan,
            record,
            predecessors,
        };
        let on_panic = || {
            let pod = self.pod.full_name();
            error!(pod, container = name, "bug in probeshim: a preStop hook panicked; please report it");
        };
        match attempt.run(|| None::<Infallible>, on_panic).await {
            KillResult::Stopped => Ok(()),
            KillResult::Failed(status) => Err(status),
        }
    }

    /// Returns the address that the runtime reports for the sandbox. In the host's network there is
    /// none; the address in the status is that of the node.
    fn sandbox_address(&self) -> String {
        if self.pod.host.network { String::new() } else { self.pod_ip().unwrap_or_default() }
    }

    /// Returns the context in which hooks of a container run.
    pub(super) fn hook_context(
        &self,
        container: &Arc<ContainerSpec>,
        names: &Arc<ContainerRef>,
        id: &Arc<str>,
        address: &str,
    ) -> HookContext {
        HookContext {
            names: ContainerNames { pod: self.names.clone(), container: names.clone() },
            id: id.clone(),
            container: container.clone(),
            address: address.into(),
        }
    }

    /// Stops all containers, then the sandboxes, even if a container does not stop. The containers
    /// stop at the same time, except sidecars, which stop last and in reverse order (kubelet:
    /// `kuberuntime_manager.go`: `killPodWithSyncResult`).
    pub(super) async fn kill_all(
        &self,
        runtime_status: &RuntimePodStatus,
        grace: GracePeriodRules,
    ) -> Result<(), KillPodError> {
        let alive: Vec<&ContainerInstance> = runtime_status.live().collect();
        let turns: TerminationOrder =
            alive.iter().map(|instance| (instance.name.clone(), CancellationToken::new())).collect();
        let kills = alive.iter().map(|instance| self.kill_in_order(instance, runtime_status, &turns, grace));
        let killed = join_all(kills).await;
        let mut errors: Vec<String> = alive
            .iter()
            .zip(killed)
            .filter_map(|(instance, killed)| Some((instance, killed.err()?)))
            .map(|(instance, status)| kill_error("KillContainer", &instance.name, &status))
            .collect();
        let mut sandbox_error = None;
        for sandbox in &runtime_status.sandboxes {
            if let Err(status) = self.stop_sandbox(&sandbox.id).await {
                sandbox_error = Some(kill_error("KillPodSandbox", &self.pod.uid, &status));
            }
        }
        errors.extend(sandbox_error);
        if errors.is_empty() { Ok(()) } else { Err(KillPodError(errors)) }
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), Status> {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let mut client = self.context.runtime.relay_client.clone();
        ignore_not_found(with_timeout(RUNTIME_REQUEST_TIMEOUT, client.stop_pod_sandbox(request)).await)
            .map(drop)
    }

    async fn kill_in_order(
        &self,
        instance: &ContainerInstance,
        runtime_status: &RuntimePodStatus,
        turns: &TerminationOrder,
        grace: GracePeriodRules,
    ) -> Result<(), Status> {
        let names = names(runtime_status, &instance.id, &instance.name);
        let message = message::stopping(&instance.name);
        let ending = match self.pod.container(&instance.name) {
            Some(container) => self.kill_spec(container, message),
            None if self.pod.origin == PodOrigin::Orphan => {
                annotated_kill_spec(&instance.annotations, message)
            }
            // The manifest no longer has this container.
            None => KillPlan { message, grace_period: 0, pre_stop: None, blocked_by: None },
        };
        let ending = KillPlan { grace_period: grace.apply(ending.grace_period), ..ending };
        let first = predecessors(&self.pod, &instance.name, turns);
        let killed = self.kill(&names, &instance.id, ending, None, &first).await;
        if let Some(turn) = turns.get(&instance.name) {
            turn.cancel();
        }
        killed
    }

    /// Removes a container. Removes its log and the rotated ones too, unless logs are kept.
    pub(super) async fn remove_with_log(&self, instance: &ContainerInstance) -> Result<(), Status> {
        self.remove(&instance.id).await?;
        if !self.context.node.keep_logs {
            let logs = cri_config::log_dir(&self.pod, &self.context.node.logs).join(&instance.name);
            remove_log(logs.join(format!("{}.log", instance.restart_count))).await;
        }
        Ok(())
    }

    /// Removes a container.
    pub(super) async fn remove(&self, id: &str) -> Result<(), Status> {
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        ignore_not_found(
            with_timeout(
                RUNTIME_REQUEST_TIMEOUT,
                self.context.runtime.relay_client.clone().remove_container(request),
            )
            .await,
        )?;
        self.context.stores.probe_killed.forget(id);
        Ok(())
    }
}

/// Returns the kill plan of a container that is known only by its annotations.
fn annotated_kill_spec(noted: &ContainerSpec, message: String) -> KillPlan {
    let grace_period = noted.annotated_grace_period.clone().and_then(Result::ok).unwrap_or(GRACE_PERIOD);
    KillPlan { message, grace_period, pre_stop: noted.pre_stop().cloned(), blocked_by: None }
}

/// Returns the tokens of the containers that end before this one. Only sidecars have predecessors.
fn predecessors(pod: &Pod, name: &str, turns: &TerminationOrder) -> Vec<CancellationToken> {
    if pod.container(name).is_none_or(|container| container.spec.role != ContainerKind::Sidecar) {
        return Vec::new();
    }
    let later = pod.init_containers().rev().take_while(|container| container.name != name);
    let later = later.filter(|container| container.spec.role == ContainerKind::Sidecar);
    let all = pod.regular_containers().chain(later);
    all.filter_map(|container| turns.get(&container.name).cloned()).collect()
}

/// Returns the grace period in seconds of a kill for this reason. The grace period of the failed
/// probe takes precedence over `of_pod`, that of the pod (kubelet: `kuberuntime_container.go`:
/// `setTerminationGracePeriod`).
fn grace_period(of_pod: u32, reason: KillReason, probe: impl Fn(ProbeType) -> Option<Arc<Probe>>) -> u32 {
    match reason {
        KillReason::Probe(kind) => probe(kind).and_then(|it| it.termination_grace_period).unwrap_or(of_pod),
        KillReason::Reset => 0,
        KillReason::Other => of_pod,
    }
}

/// Returns the record of a `StopContainer` call that is made because of a probe.
fn kill_record(report: &ProbeReport, ending: &KillPlan) -> tap::KillRecord {
    tap::KillRecord {
        probe: report.probe_type.name().to_owned(),
        message: ending.message.clone(),
        threshold: report.probe.failure_threshold,
        grace_period: ending.grace_period,
        failures: report.failures.clone(),
    }
}

/// Returns the id, name and attempt of a container instance.
fn names(runtime_status: &RuntimePodStatus, id: &str, name: &str) -> Arc<ContainerRef> {
    let attempt =
        runtime_status.containers.iter().find(|it| *it.id == *id).map(|instance| instance.restart_count);
    Arc::new(ContainerRef { id: Some(id.to_owned()), name: Some(name.to_owned()), attempt })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::kill::wait_for_predecessors;
    use crate::manifest::ProbeType::{Liveness, Startup};
    use crate::manifest::reader::tests::pod;

    /// Kubernetes' `TestKillContainerGracePeriod`, without the case in which no grace period is
    /// set: the API server always sets that of the pod.
    #[test]
    fn upstream_test_kill_container_grace_period() {
        for (of_pod, liveness, startup, reason, expected) in [
            (Some(2), None, None, KillReason::Other, 2),
            (Some(2), None, None, KillReason::Probe(Liveness), 2),
            (None, None, None, KillReason::Other, 30),
            (Some(5), Some(10), None, KillReason::Probe(Liveness), 10),
            (Some(10), Some(5), None, KillReason::Probe(Liveness), 5),
            (Some(5), None, Some(10), KillReason::Probe(Startup), 10),
            (Some(10), None, Some(5), KillReason::Probe(Startup), 5),
            (Some(5), Some(10), Some(20), KillReason::Probe(Startup), 20),
            (Some(5), Some(10), Some(20), KillReason::Probe(Liveness), 10),
            (Some(5), Some(10), Some(20), KillReason::Other, 5),
            (Some(5), Some(10), Some(20), KillReason::Reset, 0),
        ] {
            let probe = |kind: &str, grace: Option<u32>| {
                let grace = grace.map(|grace| format!(", terminationGracePeriodSeconds: {grace}"));
                format!(", {kind}: {{tcpSocket: {{port: 80}}{}}}", grace.unwrap_or_default())
            };
            let of_pod = of_pod.map(|grace: u32| format!("terminationGracePeriodSeconds: {grace}, "));
            let pod = pod(&format!(
                "{{{}containers: [{{name: a, image: i{}{}}}]}}",
                of_pod.unwrap_or_default(),
                probe("livenessProbe", liveness),
                probe("startupProbe", startup),
            ));
            let of_pod = pod.spec.termination_grace_period.unwrap();
            let of = |kind| pod.containers[0].spec.probe(kind).cloned();
            assert_eq!(grace_period(of_pod, reason, of), expected, "{reason:?}: {pod:?}");
        }
    }

    #[test]
    fn the_error_of_a_pod_that_is_not_killed_has_the_text_of_the_kubelet() {
        let container = kill_error("KillContainer", "main", &Status::unknown("a \"b\""));
        let sandbox = kill_error("KillPodSandbox", "uid", &Status::deadline_exceeded("late"));
        let expected = [
            r#"failed to "KillContainer" for "main" with KillContainerError: "rpc error: code = Unknown desc = a \"b\"""#,
            r#"failed to "KillPodSandbox" for "uid" with KillPodSandboxError: "rpc error: code = DeadlineExceeded desc = late""#,
        ];
        assert_eq!([&container, &sandbox], expected);
        assert_eq!(KillPodError(vec![container.clone()]).to_string(), container);
        let both = KillPodError(vec![container, sandbox]).to_string();
        assert_eq!(both, format!("[{}, {}]", expected[0], expected[1]));
    }

    /// Kubernetes' `TestTerminationOrderingSidecarStopAfterMain`,
    /// `TestTerminationOrderingSidecarsInReverseOrder` and `TestTerminationOrderingObeysGrace`. The
    /// numbers are the seconds in which a container is stopped and has ended.
    #[tokio::test(start_paused = true)]
    async fn upstream_test_termination_ordering() {
        let side = |name: &str| format!("{{name: {name}, image: i, restartPolicy: Always}}");
        let pod = pod(&format!(
            "{{initContainers: [{}, {{name: init, image: i}}, {}], containers: [{{name: a, image: i}}, {{name: b, image: i}}]}}",
            side("first"),
            side("second"),
        ));
        for (grace, takes, expected) in [
            // Sidecars end after the regular containers, the last started first.
            (30, [3, 4, 2, 1], [("a", 0, 3), ("b", 0, 4), ("second", 4, 6), ("first", 6, 7)]),
            // All containers share the grace period, but a container whose turn is late still has
            // the minimum.
            (8, [3, 6, 100, 100], [("a", 0, 3), ("b", 0, 6), ("second", 6, 8), ("first", 8, 10)]),
            (5, [100, 100, 100, 100], [("a", 0, 5), ("b", 0, 5), ("second", 5, 7), ("first", 5, 7)]),
            // No grace period is left after the hooks: all are stopped immediately.
            (0, [100, 100, 100, 100], [("a", 0, 2), ("b", 0, 2), ("second", 0, 2), ("first", 0, 2)]),
        ] {
            let names = ["a", "b", "second", "first"];
            let turns: TerminationOrder =
                names.map(|name| (name.to_owned(), CancellationToken::new())).into();
            let started = Instant::now();
            let ended = join_all(names.into_iter().zip(takes).map(async |(name, takes)| {
                let left = wait_for_predecessors(&predecessors(&pod, name, &turns), grace).await;
                let left = KillPlan::stop_timeout(left);
                let seconds = started.elapsed().as_secs();
                tokio::time::sleep(Duration::from_secs(left.min(takes).into())).await;
                turns[name].cancel();
                (name, seconds, started.elapsed().as_secs())
            }));
            assert_eq!(ended.await, expected, "with {grace}s");
        }
    }
}
