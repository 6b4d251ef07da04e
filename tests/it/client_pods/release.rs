//! Clients that stop or remove containers and pods, which are then no longer restarted.

use probeshim::cri::v1::*;
use rustix::process::Signal;

use super::{Owner, SHORT, begin, end, is_running, start};
use crate::admin::until_shown;
use crate::playing::POLITE;

/// Users abbreviate ids, and remove running pods.
#[tokio::test]
async fn stops_by_short_id_and_removals_release_client_containers() {
    let (runtime, running, mut owner) = begin().await;
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
    let (runtime, mut running, mut owner) = begin().await;
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
