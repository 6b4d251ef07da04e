//! Resource usage of containers.

use std::fs;

use probeshim::cri::v1::*;

use super::{Runtime, shell, until};

#[tokio::test]
async fn container_stats_count_cpu_time_and_memory_of_all_processes() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let busy = "n=0; (while :; do n=$((n+1)); done) & sleep 1000";
    let id = runtime.create(("pod", &pod), shell("busy", busy)).await.unwrap();
    let waiting = runtime.create(("pod", &pod), shell("waiting", "sleep 1000")).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    fs::write(runtime.path("root/procrun-containers").join(&id).join("written"), [0; 1000]).unwrap();
    let client = runtime.client.clone();
    let stats = until(|| {
        let (mut client, container_id) = (client.clone(), id.clone());
        async move {
            let answer = client.container_stats(ContainerStatsRequest { container_id }).await.unwrap();
            let stats = answer.into_inner().stats.unwrap();
            let cpu = stats.cpu.as_ref().unwrap().usage_core_nano_seconds.unwrap().value;
            (cpu > 20_000_000).then_some(stats)
        }
    })
    .await;
    assert!(stats.memory.unwrap().rss_bytes.unwrap().value > 100_000);
    assert_eq!(stats.writable_layer.unwrap().used_bytes.unwrap().value, 1000);
    let listed = client.clone().list_container_stats(ListContainerStatsRequest::default()).await.unwrap();
    let listed = listed.into_inner().stats;
    let of_waiting = listed.iter().find(|stats| stats.attributes.as_ref().unwrap().id == waiting).unwrap();
    assert!(
        listed.len() == 2 && of_waiting.cpu.is_none(),
        "a container that does not run must have no CPU usage"
    );
    let request = PodSandboxStatsRequest { pod_sandbox_id: pod };
    let of_pod = client.clone().pod_sandbox_stats(request).await.unwrap().into_inner().stats.unwrap();
    let linux = of_pod.linux.unwrap();
    // The processes are the shell, the busy loop below it, and sleep.
    assert_eq!(linux.process.unwrap().process_count.unwrap().value, 3);
    assert!(linux.cpu.unwrap().usage_core_nano_seconds.unwrap().value >= 20_000_000);
    let listed = client.clone().list_pod_sandbox_stats(ListPodSandboxStatsRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().stats.len(), 1);
    runtime.stop(&id, 0).await;
    let listed = client.clone().list_container_stats(ListContainerStatsRequest::default()).await.unwrap();
    let ids: Vec<_> =
        listed.into_inner().stats.into_iter().map(|stats| stats.attributes.unwrap().id).collect();
    assert_eq!(ids, [waiting], "an ended container must not be listed");
    runtime.end().await;
}
