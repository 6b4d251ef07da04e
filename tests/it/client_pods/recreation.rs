//! Containers and sandboxes that are replaced, by their client or by probeshim.

use std::collections::BTreeSet;
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::v1::*;

use super::{SHORT, attempt, begin, end, is_running, kill_and_restart};
use crate::admin::until_shown;
use crate::playing::POLITE;

/// A client that replaces a container begins with attempt 0 again, while a dead container of a
/// higher attempt may still exist.
#[tokio::test]
async fn a_container_recreated_by_its_client_is_the_newest_at_any_attempt() {
    let (runtime, mut running, mut owner) = begin().await;
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
        (running, owner) = kill_and_restart(running, owner).await;
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
    let (mut runtime, mut running, mut owner) = begin().await;
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
        (running, owner) = kill_and_restart(running, owner).await;
    }
    owner.client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.id }).await.unwrap();
    owner.another_is_restarted("last").await;
    assert!(!owner.containers("a").await.iter().any(is_running));
    end(running, owner, runtime).await;
}

/// A sandbox that has died is recreated with its containers. The previous sandbox is removed once
/// it contains nothing.
#[tokio::test]
async fn a_dead_sandbox_of_a_client_is_recreated() {
    let (mut runtime, running, mut owner) = begin().await;
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
