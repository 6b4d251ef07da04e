//! Many containers at the same time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use super::{Runtime, processes_of, shell};
use fixtures::wait::soon;
use probeshim::cri::v1::*;

#[tokio::test]
async fn two_hundred_containers_run_and_end_at_the_same_time() {
    // The program raises its limit in the same way. The soft limit is 1,024 on most systems.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let mut lives = JoinSet::new();
    for number in 0..200 {
        let request = runtime.creation(("pod", &pod), shell(&format!("main-{number}"), "sleep 1000"));
        let mut client = runtime.client.clone();
        lives.spawn(async move {
            let container_id = client.create_container(request).await.unwrap().into_inner().container_id;
            client
                .start_container(StartContainerRequest { container_id: container_id.clone() })
                .await
                .unwrap();
            let cmd = vec!["echo".to_owned(), container_id.clone()];
            let request = ExecSyncRequest { container_id: container_id.clone(), cmd, timeout: 0 };
            let answer = client.exec_sync(request).await.unwrap().into_inner();
            assert_eq!(answer.stdout, format!("{container_id}\n").into_bytes());
        });
    }
    soon(lives.join_all()).await;
    let state = Some(ContainerStateValue { state: ContainerState::ContainerRunning.into() });
    let filter = Some(ContainerFilter { state, ..Default::default() });
    let running = runtime.client.list_containers(ListContainersRequest { filter }).await.unwrap();
    assert_eq!(running.into_inner().containers.len(), 200);
    let request = RemovePodSandboxRequest { pod_sandbox_id: pod };
    soon(runtime.client.remove_pod_sandbox(request)).await.unwrap();
    assert_eq!(processes_of(runtime.folder.path()), Vec::<String>::new());
    runtime.end().await;
}
