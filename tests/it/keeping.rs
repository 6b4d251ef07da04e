//! `run --enforce restart` on procrun: containers that clients create through the relay are
//! restarted as by a kubelet, until a client releases them.

mod owner;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use probeshim::cri::v1::*;
use probeshim::cri::{MethodName, unary_message};
use probeshim::relay::{
    self, CallIds, Capture, CaptureBudget, CaptureMode, CapturePlan, CompletedCall, Observer, Relay,
};
use probeshim::socket::{BindMode, BoundPath, SocketPath, bind};
use prost::Message as _;
use rustix::process::Signal;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::admin::until_shown;
use crate::playing::POLITE;
use crate::procrun::Runtime;
use crate::program::{Place, Running};
use fixtures::wait::soon;
pub(crate) use owner::{Made, Owner, attempt, is_running};

/// Script that exits with an error after a moment.
pub(crate) const SHORT: &str = "sleep 0.3; exit 3";

pub(crate) async fn start(place: &Place) -> Running {
    place.start_watching(&["--enforce", "restart"]).await
}

pub(crate) async fn end(mut running: Running, owner: Owner, runtime: Runtime) {
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0));
    // All remaining pods belong to clients, and probeshim leaves them alone.
    owner.direct().remove_all().await;
    runtime.end().await;
}

pub(crate) fn liveness(script: &str) -> String {
    format!(
        r#"{{"exec": {{"command": ["sh", "-c", "{script}"]}}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 30, "terminationGracePeriodSeconds": 2}}"#
    )
}

/// No client calls `PodSandboxStatus`, and no container starts, of which an event would be sent.
#[tokio::test]
async fn the_address_of_a_sandbox_that_a_client_starts_is_shown() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let running = place.start_watching(&[]).await;
    let mut owner = Owner::of(place);
    owner.run("web", &[]).await;
    let shown = async || {
        until_shown(&owner.place, &["status"], |status| status["pods"][0]["ip"].as_str().map(str::to_owned))
            .await
    };
    assert_eq!(shown().await, "127.0.0.1");
    end(running, owner, runtime).await;
}

#[tokio::test]
async fn a_client_container_is_restarted_until_its_client_stops_it() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let running = start(&place).await;
    let mut owner = Owner::of(place);
    // The probe fails once, so that its second container runs until the client stops it.
    let failed = owner.place.at("failed");
    let fails_once = format!("test -e {0} || ! touch {0}", failed.display());
    owner.pod("killed", POLITE, &[("liveness.main", &liveness(&fails_once))]).await;
    owner.pod("once", SHORT, &[("restart-policy", "Never")]).await;
    owner.pod("well", "exit 0", &[("restart-policy.main", "OnFailure")]).await;
    for pod in ["killed", "ends"] {
        if pod == "ends" {
            // This pod starts later, because its back-off grows during the wait for the other pod.
            owner.pod(pod, SHORT, &[]).await;
        }
        let container = owner.has_started(pod, 1).await;
        let log = format!("main.{}.log", attempt(&container));
        let request = ContainerStatusRequest { container_id: container.id, verbose: false };
        let status = owner.client.container_status(request).await.unwrap().into_inner().status.unwrap();
        assert!(status.log_path.ends_with(&log), "{}", status.log_path);
    }
    // The container is in back-off.
    until_shown(&owner.place, &["status"], |status| {
        let pods = status["pods"].as_array()?;
        let ends = pods.iter().find(|pod| pod["name"] == "ends")?;
        (ends["containers"][0]["reason"] == "CrashLoopBackOff").then_some(())
    })
    .await;
    // A container that is removed while it waits in back-off, here for 20 s, is not restarted.
    owner.has_attempts("ends", &[1, 2]).await;
    let waits = owner.has_ended("ends").await;
    owner.client.remove_container(RemoveContainerRequest { container_id: waits.id }).await.unwrap();
    let left = owner.containers("ends").await;
    let killed = owner.runs("killed", 1).await;
    let request = StopContainerRequest { container_id: killed.id.clone(), timeout: 2 };
    owner.client.stop_container(request).await.unwrap();
    owner.is_let_go("killed").await;
    // These restarts take longer than the back-off of either container would have taken.
    owner.pod("last", SHORT, &[]).await;
    owner.has_attempts("last", &[2, 3]).await;
    assert_eq!(owner.containers("killed").await.pop().unwrap().id, killed.id);
    let is_new = |it: &Container| !left.iter().any(|known| known.id == it.id);
    assert!(!owner.containers("ends").await.iter().any(is_new), "a removed container was restarted");
    for pod in ["once", "well"] {
        let containers = owner.containers(pod).await;
        assert_eq!((containers.len(), attempt(&containers[0])), (1, 0), "{containers:#?}");
    }
    // Another pod of the same name is managed again.
    let mut pod = owner.run("again", &[]).await;
    for _ in 0..2 {
        let id = owner.create(&pod, "main", SHORT).await;
        owner.start(id).await;
        owner.has_started("again", 1).await;
        let request = StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
        owner.client.stop_pod_sandbox(request).await.unwrap();
        let request = RemovePodSandboxRequest { pod_sandbox_id: pod.id.clone() };
        owner.client.remove_pod_sandbox(request).await.unwrap();
        pod = owner.run("again", &[]).await;
    }
    end(running, owner, runtime).await;
}

/// A client that replaces a container begins with attempt 0 again, while a dead container of a
/// higher attempt may still exist.
#[tokio::test]
async fn a_container_recreated_by_its_client_is_the_newest_at_any_attempt() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut running = start(&place).await;
    let mut owner = Owner::of(place);
    let starts = owner.place.at("starts");
    let starts = starts.display();
    let pod = owner
        .pod("a", &format!("echo >> {starts}; [ $(wc -l < {starts}) -lt 3 ] && exit 3; {POLITE}"), &[])
        .await;
    let last = owner.runs("a", 2).await;
    // Attempt 0 has been removed, so its name is free.
    owner.has_attempts("a", &[1, 2]).await;
    owner.client.remove_container(RemoveContainerRequest { container_id: last.id }).await.unwrap();
    let id = owner.create(&pod, "main", POLITE).await;
    owner.start(id.clone()).await;
    let shown = until_shown(&owner.place, &["status"], |status| {
        let containers = status["pods"].as_array()?.iter().filter_map(|pod| pod["containers"].as_array());
        let shown = containers.flatten().find(|it| it["id"] == *id && it["restarts"].is_u64())?;
        Some(shown["attempt"].clone())
    });
    assert_eq!(shown.await, 0, "the attempt is that of the container, not its restart count");
    for round in 0..2 {
        owner.another_is_restarted(&format!("other-{round}")).await;
        assert_eq!(owner.runs("a", 0).await.id, id);
        running.signal(Signal::KILL);
        running.ended().await;
        running = start(&owner.place).await;
        owner = Owner::of(owner.place);
    }
    let request = StopContainerRequest { container_id: id, timeout: 2 };
    owner.client.stop_container(request).await.unwrap();
    owner.is_let_go("a").await;
    let id = owner.create_attempt(&pod, "main", SHORT, 7).await;
    owner.start(id).await;
    owner.has_started("a", 8).await;
    end(running, owner, runtime).await;
}

/// A client that replaces a sandbox begins with attempt 0 again, while a dead sandbox of a higher
/// attempt may still exist.
#[tokio::test]
async fn a_sandbox_recreated_by_its_client_is_the_newest_at_any_attempt() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut running = start(&place).await;
    let mut owner = Owner::of(place);
    let mut last = owner.pod("a", POLITE, &[]).await.id;
    for attempt in 1..=2 {
        runtime.client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: last }).await.unwrap();
        last = owner.runs("a", attempt).await.pod_sandbox_id;
    }
    owner.has_attempts("a", &[1, 2]).await;
    soon(async {
        while owner.sandboxes().await.len() > 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    owner.client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: last }).await.unwrap();
    let pod = owner.pod("a", POLITE, &[]).await;
    for round in 0..2 {
        owner.another_is_restarted(&format!("other-{round}")).await;
        let own = owner.runs("a", 0).await;
        assert_eq!((attempt(&own), &own.pod_sandbox_id), (0, &pod.id));
        running.signal(Signal::KILL);
        running.ended().await;
        running = start(&owner.place).await;
        owner = Owner::of(owner.place);
    }
    owner.client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.id }).await.unwrap();
    owner.another_is_restarted("last").await;
    assert!(!owner.containers("a").await.iter().any(is_running));
    end(running, owner, runtime).await;
}

/// A container that will not be restarted is killed nevertheless. A container that ended
/// permanently is not recreated after its removal from the runtime.
#[tokio::test]
async fn a_client_container_that_ended_permanently_is_not_recreated() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut running = start(&place).await;
    let mut owner = Owner::of(place);
    let never = ("restart-policy", "Never");
    owner.pod("killed", POLITE, &[never, ("liveness.main", &liveness("false"))]).await;
    owner.pod("well", "exit 0", &[("restart-policy", "OnFailure")]).await;
    owner.pod("once", "exit 3", &[never]).await;
    let mut direct = runtime.client.clone();
    for pod in ["killed", "well", "once"] {
        let ended = owner.has_ended(pod).await;
        assert_eq!(attempt(&ended), 0);
        owner.another_is_restarted(&format!("after-{pod}")).await;
        if pod == "once" {
            // The container is removed together with its sandbox.
            let request = RemovePodSandboxRequest { pod_sandbox_id: ended.pod_sandbox_id };
            direct.remove_pod_sandbox(request).await.unwrap();
        } else {
            direct.remove_container(RemoveContainerRequest { container_id: ended.id }).await.unwrap();
        }
    }
    for round in 0..2 {
        owner.another_is_restarted(&format!("round-{round}")).await;
        for pod in ["killed", "well", "once"] {
            assert_eq!(owner.containers(pod).await, []);
        }
        running.signal(Signal::KILL);
        running.ended().await;
        running = start(&owner.place).await;
        owner = Owner::of(owner.place);
    }
    end(running, owner, runtime).await;
}

/// probeshim does not need to see StartContainer: a running container has been started.
#[tokio::test]
async fn a_running_client_container_counts_as_started() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut running = start(&place).await;
    let mut owner = Owner::of(place);
    let mut direct = runtime.client.clone();
    for pod in ["now", "before"] {
        let made = owner.run(pod, &[]).await;
        let id = owner.create(&made, "main", SHORT).await;
        if pod == "before" {
            running.signal(Signal::TERM);
            assert_eq!(running.ended().await, Some(0));
        }
        direct.start_container(StartContainerRequest { container_id: id }).await.unwrap();
        if pod == "before" {
            running = start(&owner.place).await;
            owner = Owner::of(owner.place);
        }
        owner.has_started(pod, 1).await;
    }
    end(running, owner, runtime).await;
}

/// The container is restarted in the sandbox that exists, which probeshim could not recreate.
#[tokio::test]
async fn a_container_is_restarted_although_the_creation_of_its_sandbox_was_not_observed() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let running = start(&place).await;
    let mut owner = Owner::of(place);
    let config = owner.config("a", &[]);
    let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
    let id = runtime.client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let container = owner.create(&Made { config, id }, "main", SHORT).await;
    owner.start(container).await;
    owner.has_started("a", 1).await;
    end(running, owner, runtime).await;
}

/// A sandbox that has died is recreated with its containers. The previous sandbox is removed once
/// it contains nothing.
#[tokio::test]
async fn a_dead_sandbox_of_a_client_is_recreated() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let running = start(&place).await;
    let mut owner = Owner::of(place);
    let mut id = owner.pod("a", POLITE, &[]).await.id;
    for attempt in 1..=2 {
        // The call bypasses the relay, so no client has released the container.
        runtime.client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await.unwrap();
        let again = owner.runs("a", attempt).await;
        let sandboxes = owner.sandboxes().await;
        let other = sandboxes.iter().find(|sandbox| sandbox.id == again.pod_sandbox_id).unwrap();
        assert_eq!(other.metadata.as_ref().unwrap().attempt, attempt);
        id = again.pod_sandbox_id;
    }
    let attempts = |sandboxes: Vec<PodSandbox>| -> BTreeSet<u32> {
        sandboxes.into_iter().map(|sandbox| sandbox.metadata.unwrap().attempt).collect()
    };
    let is_removed = async {
        while attempts(owner.sandboxes().await) != BTreeSet::from([1, 2]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(is_removed).await;
    owner.runs("a", 2).await;
    end(running, owner, runtime).await;
}

/// Containers that ended permanently stay ended after probeshim is killed.
#[tokio::test]
async fn restart_policies_survive_a_kill_of_probeshim() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut running = start(&place).await;
    let mut owner = Owner::of(place);
    owner.pod("once", SHORT, &[("restart-policy", "Never")]).await;
    owner.pod("well", "exit 0", &[("restart-policy.main", "OnFailure")]).await;
    owner.another_is_restarted("first").await;
    running.signal(Signal::KILL);
    running.ended().await;
    running = start(&owner.place).await;
    owner = Owner::of(owner.place);
    owner.another_is_restarted("second").await;
    for pod in ["once", "well"] {
        let containers = owner.containers(pod).await;
        assert_eq!((containers.len(), attempt(&containers[0])), (1, 0), "{containers:#?}");
    }
    end(running, owner, runtime).await;
}

/// Users abbreviate ids, and remove running pods.
#[tokio::test]
async fn stops_by_short_id_and_removals_release_client_containers() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let running = start(&place).await;
    let mut owner = Owner::of(place);
    let stopped = owner.pod("stopped", POLITE, &[]).await;
    let removed = owner.pod("removed", POLITE, &[]).await;
    let mut short = owner.run("short", &[]).await;
    short.id.truncate(13);
    let id = owner.create(&short, "main", SHORT).await;
    owner.start(id).await;
    owner.has_started("short", 1).await;
    let request = StopPodSandboxRequest { pod_sandbox_id: stopped.id[..13].to_owned() };
    owner.client.stop_pod_sandbox(request).await.unwrap();
    let request = RemovePodSandboxRequest { pod_sandbox_id: removed.id };
    owner.client.remove_pod_sandbox(request).await.unwrap();
    owner.another_is_restarted("last").await;
    assert!(!owner.containers("stopped").await.iter().any(is_running));
    assert!(owner.containers("removed").await.is_empty());
    end(running, owner, runtime).await;
}

/// A container that a client stops while restarts are off is released. A container created during
/// that time is reported as not restartable.
#[tokio::test]
async fn a_client_container_stopped_while_restarts_are_off_is_not_restarted() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut running = start(&place).await;
    let mut owner = Owner::of(place);
    owner.pod("stopped", POLITE, &[]).await;
    let removed = owner.pod("removed", POLITE, &[]).await;
    owner.pod("left", POLITE, &[]).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0));

    running = owner.place.start_watching(&[]).await;
    owner = Owner::of(owner.place);
    let id = owner.runs("stopped", 0).await.id;
    owner.client.stop_container(StopContainerRequest { container_id: id, timeout: 2 }).await.unwrap();
    let request = RemovePodSandboxRequest { pod_sandbox_id: removed.id };
    owner.client.remove_pod_sandbox(request).await.unwrap();
    owner.pod("meanwhile", POLITE, &[]).await;
    // The stop on the runtime's own socket bypasses the relay, so no client has released the
    // container.
    let mut direct = runtime.client.clone();
    let id = owner.runs("left", 0).await.id;
    direct.stop_container(StopContainerRequest { container_id: id, timeout: 2 }).await.unwrap();
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0));

    running = start(&owner.place).await;
    owner = Owner::of(owner.place);
    owner.runs("left", 1).await;
    let reason = until_shown(&owner.place, &["status"], |status| {
        let pod = status["pods"].as_array()?.iter().find(|pod| pod["name"] == "meanwhile")?;
        pod["containers"][0]["notRestartable"].as_str().map(str::to_owned)
    });
    assert_eq!(reason.await, "created while --enforce restart was off");
    owner.another_is_restarted("last").await;
    assert!(!owner.containers("stopped").await.iter().any(is_running));
    assert!(owner.containers("removed").await.is_empty());
    end(running, owner, runtime).await;
}

/// Containers whose creation probeshim did not see are reported in the status and when they end.
/// They are not killed, because they would not be restarted.
#[tokio::test]
async fn containers_with_unobserved_creation_are_reported_as_not_restartable() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut before = Owner::of(place);
    before.client = runtime.client.clone();
    before.pod("before", POLITE, &[("liveness.main", &liveness("false"))]).await;
    let running = start(&before.place).await;
    let mut owner = Owner::of(before.place);
    let seen = until_shown(&owner.place, &["status"], |status| {
        status["pods"][0]["containers"][0]["notRestartable"].as_str().map(str::to_owned)
    });
    assert_eq!(seen.await, "its RunPodSandbox and CreateContainer were not seen");
    let is_event = |reason: &'static str| {
        move |events: &Value| {
            let found = events.as_array()?.iter().find(|event| event["reason"] == reason)?;
            Some(found["message"].as_str()?.to_owned())
        }
    };
    let held = until_shown(&owner.place, &["events"], is_event("KillSkipped")).await;
    assert!(held.contains("it would not be restarted"), "{held}");
    let container = owner.runs("before", 0).await;
    let request = StopContainerRequest { container_id: container.id, timeout: 2 };
    before.client.stop_container(request).await.unwrap();
    let lost = until_shown(&owner.place, &["events"], is_event("NotRestartable")).await;
    assert_eq!(
        lost,
        "The container has ended and is not restarted: its RunPodSandbox and CreateContainer were not seen"
    );
    end(running, owner, runtime).await;
}

/// An observer that captures the requests of `RunPodSandbox` and `CreateContainer`.
#[derive(Debug)]
struct Witness {
    budget: CaptureBudget,
    created: Mutex<Vec<Vec<u8>>>,
}

impl Observer for Witness {
    fn capture_plan(&self, method: &MethodName) -> CapturePlan {
        let request = match method.label() {
            "CreateContainer" | "RunPodSandbox" => CaptureMode::Prefix(Capture::new(1 << 20, &self.budget)),
            _ => CaptureMode::None,
        };
        CapturePlan { request, ..CapturePlan::default() }
    }

    fn on_end(&self, call: CompletedCall) {
        if let Some(capture) = call.request.capture {
            self.created.lock().unwrap().push(unary_message(capture.bytes().unwrap()).unwrap().to_vec());
        }
    }
}

impl Witness {
    /// Starts a relay in front of a runtime, and returns it with its observer.
    fn between(listen: &Path, upstream: &Path) -> (Arc<Self>, Option<BoundPath>) {
        let witness = Arc::new(Self { budget: CaptureBudget::new(8 << 20), created: Mutex::default() });
        let upstream = SocketPath::new(upstream).unwrap();
        let listening = bind(&SocketPath::new(listen).unwrap(), BindMode::InheritFrom(&upstream)).unwrap();
        let settings = relay::RelayConfig { upstream, drain_timeout: Duration::ZERO };
        let (numbers, drain) = (CallIds::starting_at(1), CancellationToken::new());
        Relay::start(
            listening.listener,
            settings,
            witness.clone(),
            relay::RelayMetrics::default(),
            numbers,
            drain,
        )
        .unwrap();
        (witness, listening.claim)
    }

    /// Waits until `count` requests have been captured.
    async fn made(&self, count: usize) -> Vec<Vec<u8>> {
        soon(async {
            loop {
                let made = self.created.lock().unwrap().clone();
                if made.len() >= count {
                    return made;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }
}

/// Returns field 1000 of a message, which no schema defines.
fn unknown(content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::bytes::encode(1000, &content.to_vec(), &mut field);
    field
}

/// probeshim is killed while a container is in back-off. Its successor has the original request,
/// the restart count and the back-off.
#[tokio::test]
async fn unknown_fields_and_restart_counts_survive_a_kill_of_probeshim() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("procrun.sock"));
    let (witness, _claim) = Witness::between(&place.at("runtime.sock"), &place.at("procrun.sock"));
    let mut running = start(&place).await;
    let mut owner = Owner::of(place);
    let pod = owner.run("a", &[]).await;
    let mut config = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(ImageSpec { image: "image".to_owned(), ..ImageSpec::default() }),
        command: ["sh", "-c", SHORT].map(str::to_owned).into(),
        ..ContainerConfig::default()
    }
    .encode_to_vec();
    config.extend(unknown(b"of the container"));
    let mut request = CreateContainerRequest {
        pod_sandbox_id: pod.id.clone(),
        config: None,
        sandbox_config: Some(pod.config.clone()),
    }
    .encode_to_vec();
    prost::encoding::bytes::encode(2, &config, &mut request);
    request.extend(unknown(b"of the request"));
    let id = owner.create_raw(request).await;
    owner.start(id).await;
    let seen = witness.made(3).await;
    // The restarted container has ended and is in back-off.
    until_shown(&owner.place, &["status"], |status| {
        (status["pods"][0]["containers"][0]["reason"] == "CrashLoopBackOff").then_some(())
    })
    .await;
    running.signal(Signal::KILL);
    running.ended().await;
    let running = start(&owner.place).await;
    owner = Owner::of(owner.place);
    until_shown(&owner.place, &["status"], |status| {
        let container = &status["pods"][0]["containers"][0];
        (container["reason"] == "CrashLoopBackOff").then(|| assert_eq!(container["restarts"], 1))
    })
    .await;
    let again = witness.made(seen.len() + 1).await.pop().unwrap();
    for content in [&b"of the container"[..], b"of the request"] {
        let field = unknown(content);
        assert_eq!(again.windows(field.len()).filter(|bytes| *bytes == field).count(), 1);
    }
    let read = CreateContainerRequest::decode(&*again).unwrap();
    assert_eq!(read.config.unwrap().metadata.unwrap().attempt, 2);
    end(running, owner, runtime).await;
}
