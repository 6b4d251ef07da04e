//! The life of a container from CreateContainer to RemoveContainer.

use std::fs;
use std::os::unix::fs::symlink;

use fixtures::wait::soon;
use probeshim::cri::v1::*;

use super::{Runtime, processes_of, shell};

#[tokio::test]
async fn container_status_has_state_times_exit_code_and_reason() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    for (name, script, code, reason) in [
        ("completed", "exit 0", 0, "Completed"),
        ("failed", "exit 3", 3, "Error"),
        ("killed", "kill -9 $$", 137, "Error"),
    ] {
        let id = runtime.create(("pod", &pod), shell(name, script)).await.unwrap();
        let created = runtime.status(&id).await;
        assert_eq!(created.state(), ContainerState::ContainerCreated);
        assert_eq!((created.started_at, created.finished_at), (0, 0));
        runtime.start_container(&id).await.unwrap();
        let ended = runtime.ended(&id).await;
        assert_eq!((ended.exit_code, ended.reason.as_str()), (code, reason));
        let times = [created.created_at, ended.started_at, ended.finished_at];
        assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
        assert_eq!(created.created_at, ended.created_at);
    }
    runtime.end().await;
}

#[tokio::test]
async fn container_status_returns_the_values_of_the_config() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let mut config = shell("main", "sleep 1000");
    config.metadata.as_mut().unwrap().attempt = 7;
    config.annotations = [("io.kubernetes.container.restartCount".to_owned(), "7".to_owned())].into();
    config.linux = Some(LinuxContainerConfig {
        resources: Some(LinuxContainerResources { cpu_shares: 100, ..Default::default() }),
        ..Default::default()
    });
    let id = runtime.create(("pod", &pod), config.clone()).await.unwrap();
    let update = UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(LinuxContainerResources { memory_limit_in_bytes: 1 << 20, ..Default::default() }),
        ..Default::default()
    };
    runtime.client.update_container_resources(update).await.unwrap();
    let status = runtime.status(&id).await;
    assert_eq!(status.metadata, config.metadata);
    assert_eq!((&status.labels, &status.annotations), (&config.labels, &config.annotations));
    let resources = status.resources.unwrap().linux.unwrap();
    assert_eq!((resources.cpu_shares, resources.memory_limit_in_bytes), (100, 1 << 20));
    assert!(status.log_path.ends_with("/logs/pod/main.log"), "{}", status.log_path);

    let request = PodSandboxStatusRequest { pod_sandbox_id: pod, verbose: false };
    let of_pod = runtime.client.pod_sandbox_status(request).await.unwrap().into_inner();
    let sandbox = of_pod.status.unwrap();
    assert_eq!(sandbox.network.unwrap().ip, "127.0.0.1");
    assert_eq!(sandbox.labels, runtime.pod("pod").labels);
    assert_eq!(of_pod.containers_statuses.len(), 1);
    runtime.end().await;
}

#[tokio::test]
async fn a_container_has_its_own_environment_and_working_directory() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let script = r#"echo "$GREETING $HOSTNAME" > said; pwd > where; echo "$HOME" > home; env | grep -c CARGO > leaked"#;
    let mut config = shell("main", script);
    config.working_dir = "/a/../../b/c".into();
    config.envs = vec![KeyValue { key: "GREETING".into(), value: b"hello".into() }];
    let id = runtime.create(("pod", &pod), config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    assert_eq!(runtime.ended(&id).await.exit_code, 1, "grep must find no match and exit with 1");
    let folder = runtime.path("root/procrun-containers").canonicalize().unwrap().join(&id);
    let inside = |name| runtime.file(&id, name);
    assert!(inside("b/c/said").await.starts_with("hello "));
    assert_eq!(inside("b/c/where").await, folder.join("b/c").to_str().unwrap());
    assert_eq!(inside("b/c/home").await, folder.to_str().unwrap());
    assert_eq!(
        inside("b/c/leaked").await,
        "0",
        "a variable of procrun's environment leaked into the container"
    );
    runtime.end().await;
}

#[tokio::test]
async fn each_container_has_its_own_session_and_process_group() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("cut -d' ' -f1,5,6 /proc/self/stat > self; echo $$ > pid; sleep 1000").await;
    let [pid, stat] = [runtime.file(&id, "pid").await, runtime.file(&id, "self").await];
    let numbers: Vec<&str> = stat.split(' ').collect();
    assert_eq!(numbers[1], pid, "the shell must lead the process group");
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    assert_ne!(Some(numbers[2]), own.split(' ').nth(5), "the session must differ from procrun's session");
    runtime.end().await;
}

#[tokio::test]
async fn a_pod_is_removed_with_everything_in_it_and_nothing_outside() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("touch file; sleep 1000").await;
    let folder = runtime.path("root/procrun-containers").join(&id);
    fs::create_dir(runtime.path("outside")).unwrap();
    fs::write(runtime.path("outside/kept"), "").unwrap();
    symlink(runtime.path("outside"), folder.join("link")).unwrap();
    let pod = runtime.status(&id).await.labels["app"].clone();
    assert_eq!(pod, "main");
    let sandboxes = runtime.client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    let pod_sandbox_id = sandboxes.into_inner().items.remove(0).id;
    let request = RemovePodSandboxRequest { pod_sandbox_id };
    soon(runtime.client.remove_pod_sandbox(request)).await.unwrap();
    assert!(!folder.exists() && runtime.path("outside/kept").exists());
    assert_eq!(processes_of(runtime.folder.path()), Vec::<String>::new());
    assert_eq!(runtime.containers().await, []);
    // The name of the pod is free again.
    runtime.run_pod("pod").await;
    runtime.end().await;
}
