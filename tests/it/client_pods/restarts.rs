//! Restarts by probes and by restart policies.

use probeshim::cri::v1::*;

use super::{SHORT, attempt, begin, end, kill_and_restart, liveness};
use crate::admin::until_shown;
use crate::playing::POLITE;

#[tokio::test]
async fn a_client_container_is_restarted_until_its_client_stops_it() {
    let (runtime, running, mut owner) = begin().await;
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
        owner.remove_sandbox(&pod.id).await;
        pod = owner.run("again", &[]).await;
    }
    end(running, owner, runtime).await;
}

/// A container that will not be restarted is killed nevertheless. A container that ended
/// permanently is not recreated after its removal from the runtime.
#[tokio::test]
async fn a_client_container_that_ended_permanently_is_not_recreated() {
    let (runtime, mut running, mut owner) = begin().await;
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
        (running, owner) = kill_and_restart(running, owner).await;
    }
    end(running, owner, runtime).await;
}

/// Containers that ended permanently stay ended after probeshim is killed.
#[tokio::test]
async fn restart_policies_survive_a_kill_of_probeshim() {
    let (runtime, mut running, mut owner) = begin().await;
    owner.pod("once", SHORT, &[("restart-policy", "Never")]).await;
    owner.pod("well", "exit 0", &[("restart-policy.main", "OnFailure")]).await;
    owner.another_is_restarted("first").await;
    (running, owner) = kill_and_restart(running, owner).await;
    owner.another_is_restarted("second").await;
    for pod in ["once", "well"] {
        let containers = owner.containers(pod).await;
        assert_eq!((containers.len(), attempt(&containers[0])), (1, 0), "{containers:#?}");
    }
    end(running, owner, runtime).await;
}
