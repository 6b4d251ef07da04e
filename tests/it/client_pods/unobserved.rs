//! Pods and containers of which probeshim did not see all calls.

use probeshim::cri::v1::*;
use rustix::process::Signal;
use serde_json::Value;

use super::owner::Made;
use super::{Owner, SHORT, begin, end, liveness, start};
use crate::admin::until_shown;
use crate::playing::POLITE;
use crate::procrun::Runtime;
use crate::program::Place;

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

/// The list of sandboxes, which has no addresses, shows the sandbox first.
#[tokio::test]
async fn the_address_of_a_sandbox_that_was_started_before_probeshim_is_shown() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut before = Owner::of(place);
    before.client = runtime.client.clone();
    before.run("web", &[]).await;
    let place = before.place;
    let running = place.start_watching(&[]).await;
    let owner = Owner::of(place);
    let shown =
        until_shown(&owner.place, &["status"], |status| status["pods"][0]["ip"].as_str().map(str::to_owned));
    assert_eq!(shown.await, "127.0.0.1");
    end(running, owner, runtime).await;
}

/// probeshim does not need to see StartContainer: a running container has been started.
#[tokio::test]
async fn a_running_client_container_counts_as_started() {
    let (runtime, mut running, mut owner) = begin().await;
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
    let (mut runtime, running, mut owner) = begin().await;
    let config = owner.config("a", &[]);
    let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
    let id = runtime.client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let container = owner.create(&Made { config, id }, "main", SHORT).await;
    owner.start(container).await;
    owner.has_started("a", 1).await;
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
