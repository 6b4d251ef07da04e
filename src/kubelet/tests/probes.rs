//! Syncs that kill a container because of a failed probe, with a runtime in memory.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::cri::v1::{ContainerMetadata, ContainerState, PodSandboxMetadata};
use crate::cri::{ContainerObservation, SandboxObservation};
use crate::handler::exec_tests::answer;
use crate::inventory::{Inventory, Source};
use crate::prober::{AttemptReporter, EnforcementMode, EnforcementSettings, ProberConfig, ProberMetrics};
use crate::tap::Observation;

/// Returns a prober whose commands fail.
fn failing_prober(specs: SpecResolver, events: &Arc<EventRecorder>) -> ProbeManager {
    let config = ProberConfig {
        specs,
        metrics: ProberMetrics::default(),
        inspect_requests: mpsc::channel(1).0,
        skip_start_jitter: true,
        attempts: AttemptReporter::default(),
        enforcement: EnforcementSettings { mode: EnforcementMode::Restart, ..EnforcementSettings::default() },
    };
    let executor = Executor::fake(|_| (Duration::ZERO, answer(1, "", "")));
    ProbeManager::start(config, executor, events.clone(), Handle::current())
}

/// Reports the first sandbox and the first container of a pod to the prober.
fn observe(prober: &ProbeManager, pod: &Pod) {
    let mut inventory = Arc::<Inventory>::default();
    let metadata = PodSandboxMetadata {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        attempt: 0,
    };
    let sandbox = SandboxObservation {
        id: "sandbox-1".to_owned(),
        metadata: Some(metadata),
        is_ready: Some(true),
        ..SandboxObservation::default()
    };
    let container = ContainerObservation {
        id: "container-1".to_owned(),
        sandbox: Some("sandbox-1".to_owned()),
        metadata: Some(ContainerMetadata { name: pod.containers[0].name.clone(), attempt: 0 }),
        state: Some(ContainerState::ContainerRunning),
        created_at: Some(1),
        started_at: Some(jiff::Timestamp::now().as_nanosecond().try_into().unwrap()),
        ..ContainerObservation::default()
    };
    let facts = vec![Observation::Sandbox(sandbox), Observation::Container(container)];
    let now = Instant::now();
    let changes = inventory.fold(Source::List, now, now, facts);
    prober.changed(&inventory, &changes);
}

/// A kubelet starts a killed container only in the sync of the kill.
#[tokio::test]
async fn a_container_killed_in_a_failed_sync_is_restarted_by_its_policy_alone() {
    let probe = "livenessProbe: {exec: {command: [x]}, periodSeconds: 1, failureThreshold: 1}";
    let common = "image: i, imagePullPolicy: Never";
    let spec = format!(
        "{{restartPolicy: OnFailure, terminationGracePeriodSeconds: 1, \
         containers: [{{name: main, {common}, {probe}}}, {{name: other, {common}}}]}}"
    );
    let pod = Arc::new(Pod { name: "a".to_owned(), ..pod(&spec) });
    let specs = with_pods(&SpecResolver::default(), std::iter::once(&pod));
    let node = Node::start_with(|events| Some(failing_prober(specs, events)));
    node.runtime.fail_stops();
    node.pods.send_replace(vec![pod.clone()]);
    node.until("a", is_running).await;
    observe(node.kubelet.context.prober.as_ref().unwrap(), &pod);
    let has_exited = |published: &PublishedPod| {
        let status = published.status();
        status.is_some_and(|it| it.containers().next().is_some_and(|main| main.terminated().is_some()))
    };
    let probe_killed = &node.kubelet.context.stores.probe_killed;
    // The end of the container may be published before the sync has failed.
    node.until("a", |it| has_exited(it) && !probe_killed.has_pending_restart("container-1")).await;
    assert!(probe_killed.has("container-1") && !probe_killed.has_pending_restart("container-1"));
    node.pods.send_replace(vec![pod, named("b", None)]);
    node.until("b", is_running).await;
    assert_eq!(node.runtime.created(), 3, "main is not restarted");
    node.pods.send_replace(Vec::new());
    node.kubelet.force_terminate();
    node.end.cancel();
    node.run.await.unwrap();
}
