//! What clients do wrong, and how a runtime tells them: each mistake with the code and the words of the answer.

use std::path::Path;

use probeshim::cri::{runtime_service, v1};
use probeshim::socket::SocketPath;
use regex::Regex;
use tonic::{Code, Status};

use super::image::BUSYBOX;

type Client = v1::runtime_service_client::RuntimeServiceClient<tonic::transport::Channel>;

/// A mistake, and the answer to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) mistake: &'static str,
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// Makes every mistake once, with pods whose logs go below `folder`.
pub(crate) async fn all(socket: &Path, folder: &Path) -> Vec<Answer> {
    let mut client = runtime_service(&SocketPath::new(socket).unwrap());
    let mut seen: Vec<Answer> = Vec::new();
    let mut ids: Vec<(String, &str)> = Vec::new();
    macro_rules! step {
        ($name:expr, $call:expr) => {{
            let outcome = $call.await;
            let (code, message) = match outcome {
                Ok(ref _fine) => (Code::Ok, String::new()),
                Err(ref status) => (status.code(), status.message().to_owned()),
            };
            eprintln!("{:40} {code:?} {message}", $name);
            seen.push(Answer { mistake: $name, code, message });
            outcome
        }};
    }
    let sandbox = |name: &str| v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            namespace: "e2e".into(),
            uid: format!("uid-{name}"),
            attempt: 0,
        }),
        log_directory: folder.join("logs").join(name).to_str().unwrap().into(),
        linux: Some(v1::LinuxPodSandboxConfig::default()),
        ..Default::default()
    };
    let container = |name: &str, command: &[&str]| v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: BUSYBOX.into(), ..Default::default() }),
        command: command.iter().map(ToString::to_string).collect(),
        log_path: format!("{name}.log"),
        linux: Some(v1::LinuxContainerConfig::default()),
        ..Default::default()
    };
    let run = |config: Option<v1::PodSandboxConfig>| v1::RunPodSandboxRequest {
        config,
        runtime_handler: String::new(),
    };
    let sleep = ["sleep", "1000"];

    let _ = step!("run without a config", client.run_pod_sandbox(run(None)));
    let _ = step!(
        "run without metadata",
        client.run_pod_sandbox(run(Some(v1::PodSandboxConfig { metadata: None, ..sandbox("x") })))
    );
    let _ = step!(
        "run with an unknown handler",
        client.run_pod_sandbox(v1::RunPodSandboxRequest {
            config: Some(sandbox("handled")),
            runtime_handler: "nobody".into()
        })
    );
    let _ = step!(
        "run with nothing in the metadata",
        client.run_pod_sandbox(run(Some(v1::PodSandboxConfig {
            metadata: Some(Default::default()),
            ..sandbox("x")
        })))
    );
    let pod =
        client.run_pod_sandbox(run(Some(sandbox("mistaken")))).await.unwrap().into_inner().pod_sandbox_id;
    let _ = step!("run of the same pod again", client.run_pod_sandbox(run(Some(sandbox("mistaken")))));
    let create = |pod: &str, config: Option<v1::ContainerConfig>| v1::CreateContainerRequest {
        pod_sandbox_id: pod.into(),
        config,
        sandbox_config: Some(sandbox("mistaken")),
    };
    let _ = step!(
        "create in an unknown sandbox",
        client.create_container(create("nobody", Some(container("a", &sleep))))
    );
    let _ = step!("create in no sandbox", client.create_container(create("", Some(container("a", &sleep)))));
    let _ = step!("create without a config", client.create_container(create(&pod, None)));
    let _ = step!(
        "create without metadata",
        client.create_container(create(
            &pod,
            Some(v1::ContainerConfig { metadata: None, ..container("a", &sleep) })
        ))
    );
    let _ = step!(
        "create without an image",
        client.create_container(create(
            &pod,
            Some(v1::ContainerConfig { image: None, ..container("a", &sleep) })
        ))
    );
    let _ = step!(
        "create of an image that is not there",
        client.create_container(create(
            &pod,
            Some(v1::ContainerConfig {
                image: Some(v1::ImageSpec { image: "missing.test/nobody:1".into(), ..Default::default() }),
                ..container("a", &sleep)
            })
        ))
    );
    let _ =
        step!("create without a command", client.create_container(create(&pod, Some(container("a", &[])))));
    let _ = step!(
        "create without a sandbox config",
        client.create_container(v1::CreateContainerRequest {
            sandbox_config: None,
            ..create(&pod, Some(container("b", &sleep)))
        })
    );
    let made = client
        .create_container(create(&pod, Some(container("main", &sleep))))
        .await
        .unwrap()
        .into_inner()
        .container_id;
    let _ = step!(
        "create of the same container again",
        client.create_container(create(&pod, Some(container("main", &sleep))))
    );
    let exec = |id: &str, command: &[&str], timeout: i64| v1::ExecSyncRequest {
        container_id: id.into(),
        cmd: command.iter().map(ToString::to_string).collect(),
        timeout,
    };
    let _ = step!("exec before the start", client.exec_sync(exec(&made, &["true"], 0)));
    let _ = step!(
        "reopen before the start",
        client.reopen_container_log(v1::ReopenContainerLogRequest { container_id: made.clone() })
    );
    let _ = step!("start", client.start_container(v1::StartContainerRequest { container_id: made.clone() }));
    let _ = step!(
        "start again",
        client.start_container(v1::StartContainerRequest { container_id: made.clone() })
    );
    let _ = step!("exec of nothing", client.exec_sync(exec(&made, &[], 0)));
    let _ = step!("exec of an empty word", client.exec_sync(exec(&made, &[""], 0)));
    let _ = step!("exec of what does not exist", client.exec_sync(exec(&made, &["no-such-program"], 0)));
    let _ =
        step!("exec of a path that does not exist", client.exec_sync(exec(&made, &["/no/such/program"], 0)));
    let _ = step!("exec of what is no program", client.exec_sync(exec(&made, &["/etc/passwd"], 0)));
    let _ = step!("exec of a folder", client.exec_sync(exec(&made, &["/etc"], 0)));
    let _ = step!("exec, negative timeout", client.exec_sync(exec(&made, &["true"], -1)));
    let _ = step!("exec, timeout", client.exec_sync(exec(&made, &["sleep", "100"], 1)));
    let _ = step!("exec in nobody", client.exec_sync(exec("nobody", &["true"], 0)));
    let _ = step!("exec in nothing", client.exec_sync(exec("", &["true"], 0)));
    let _ = step!("exec by a short id", client.exec_sync(exec(&made[..13], &["true"], 0)));
    let _ = step!(
        "status of nobody",
        client.container_status(v1::ContainerStatusRequest { container_id: "nobody".into(), verbose: false })
    );
    let _ = step!(
        "pod status of nobody",
        client.pod_sandbox_status(v1::PodSandboxStatusRequest {
            pod_sandbox_id: "nobody".into(),
            verbose: false
        })
    );
    let _ = step!(
        "stats of nobody",
        client.container_stats(v1::ContainerStatsRequest { container_id: "nobody".into() })
    );
    let _ = step!(
        "pod stats of nobody",
        client.pod_sandbox_stats(v1::PodSandboxStatsRequest { pod_sandbox_id: "nobody".into() })
    );
    let _ = step!(
        "start of nobody",
        client.start_container(v1::StartContainerRequest { container_id: "nobody".into() })
    );
    let _ = step!(
        "stop of nobody",
        client.stop_container(v1::StopContainerRequest { container_id: "nobody".into(), timeout: 1 })
    );
    let _ = step!(
        "remove of nobody",
        client.remove_container(v1::RemoveContainerRequest { container_id: "nobody".into() })
    );
    let _ = step!(
        "stop of nobody's pod",
        client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: "nobody".into() })
    );
    let _ = step!(
        "remove of nobody's pod",
        client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: "nobody".into() })
    );
    let _ = step!(
        "reopen of nobody",
        client.reopen_container_log(v1::ReopenContainerLogRequest { container_id: "nobody".into() })
    );
    let _ = step!(
        "update of nobody",
        client.update_container_resources(v1::UpdateContainerResourcesRequest {
            container_id: "nobody".into(),
            ..Default::default()
        })
    );
    let _ = step!(
        "update with nothing",
        client.update_container_resources(v1::UpdateContainerResourcesRequest {
            container_id: made.clone(),
            ..Default::default()
        })
    );

    // Containers that cannot start.
    for (name, config) in [
        ("start of what does not exist", container("missing", &["no-such-program"])),
        ("start of a path that does not exist", container("missing-path", &["/no/such/program"])),
        ("start of what is no program", container("no-program", &["/etc/passwd"])),
        (
            "start in a relative folder",
            v1::ContainerConfig { working_dir: "relative".into(), ..container("relative", &sleep) },
        ),
        (
            "start with a log path that escapes",
            v1::ContainerConfig { log_path: "../escaped.log".into(), ..container("escaping", &sleep) },
        ),
        (
            "start with a log path that is absolute",
            v1::ContainerConfig { log_path: "/absolute.log".into(), ..container("absolute", &sleep) },
        ),
        (
            "start with a stop signal that is none",
            v1::ContainerConfig { stop_signal: 99, ..container("signalled", &sleep) },
        ),
    ] {
        let short = config.metadata.as_ref().unwrap().name.clone();
        let created = client.create_container(create(&pod, Some(config))).await;
        match created {
            Err(status) => {
                eprintln!("{name:40} (create) {:?} {}", status.code(), status.message());
                seen.push(Answer {
                    mistake: name,
                    code: status.code(),
                    message: format!("create: {}", status.message()),
                });
            }
            Ok(created) => {
                let id = created.into_inner().container_id;
                let _ = step!(
                    name,
                    client.start_container(v1::StartContainerRequest { container_id: id.clone() })
                );
                let status = client
                    .container_status(v1::ContainerStatusRequest { container_id: id.clone(), verbose: false })
                    .await
                    .unwrap()
                    .into_inner()
                    .status
                    .unwrap();
                eprintln!(
                    "    {short}: {:?} exit {} reason {:?} message {:?} started {} log {}",
                    status.state(),
                    status.exit_code,
                    status.reason,
                    status.message,
                    status.started_at != 0,
                    status.log_path
                );
                ids.push((id, "ID"));
            }
        }
    }
    // A log folder that cannot be made.
    std::fs::write(folder.join("file"), "").unwrap();
    let config = v1::PodSandboxConfig {
        log_directory: folder.join("file/logs").to_str().unwrap().into(),
        ..sandbox("unlogged")
    };
    let unlogged =
        step!("run with a log folder that cannot be", client.run_pod_sandbox(run(Some(config.clone()))));
    if let Ok(unlogged) = unlogged {
        let unlogged = unlogged.into_inner().pod_sandbox_id;
        let created = step!(
            "create with a log folder that cannot be",
            client.create_container(v1::CreateContainerRequest {
                pod_sandbox_id: unlogged.clone(),
                config: Some(container("main", &sleep)),
                sandbox_config: Some(config)
            })
        );
        if let Ok(created) = created {
            let _ = step!(
                "start with a log folder that cannot be",
                client.start_container(v1::StartContainerRequest {
                    container_id: created.into_inner().container_id
                })
            );
        }
        let _ =
            client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: unlogged.clone() }).await;
    }
    let _ = step!(
        "stop",
        client.stop_container(v1::StopContainerRequest { container_id: made.clone(), timeout: 0 })
    );
    let status = client
        .container_status(v1::ContainerStatusRequest { container_id: made.clone(), verbose: false })
        .await
        .unwrap()
        .into_inner()
        .status
        .unwrap();
    eprintln!(
        "    stopped: {:?} exit {} reason {:?} message {:?}",
        status.state(),
        status.exit_code,
        status.reason,
        status.message
    );
    let _ = step!(
        "stop again",
        client.stop_container(v1::StopContainerRequest { container_id: made.clone(), timeout: 0 })
    );
    let _ = step!("exec after the end", client.exec_sync(exec(&made, &["true"], 0)));
    let _ = step!(
        "start after the end",
        client.start_container(v1::StartContainerRequest { container_id: made.clone() })
    );
    let _ = step!(
        "reopen after the end",
        client.reopen_container_log(v1::ReopenContainerLogRequest { container_id: made.clone() })
    );
    let _ = step!(
        "update after the end",
        client.update_container_resources(v1::UpdateContainerResourcesRequest {
            container_id: made.clone(),
            ..Default::default()
        })
    );
    let waiting = client
        .create_container(create(&pod, Some(container("waiting", &sleep))))
        .await
        .unwrap()
        .into_inner()
        .container_id;
    let _ = step!(
        "stop before the start",
        client.stop_container(v1::StopContainerRequest { container_id: waiting.clone(), timeout: 0 })
    );
    let status = client
        .container_status(v1::ContainerStatusRequest { container_id: waiting.clone(), verbose: false })
        .await
        .unwrap()
        .into_inner()
        .status
        .unwrap();
    eprintln!(
        "    stopped before start: {:?} exit {} reason {:?} message {:?}",
        status.state(),
        status.exit_code,
        status.reason,
        status.message
    );
    let _ = step!(
        "stop of the pod",
        client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod.clone() })
    );
    let _ = step!(
        "stop of the pod again",
        client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod.clone() })
    );
    let _ = step!(
        "start in a stopped pod",
        client.start_container(v1::StartContainerRequest { container_id: waiting.clone() })
    );
    let _ = step!(
        "create in a stopped pod",
        client.create_container(create(&pod, Some(container("late", &sleep))))
    );
    let _ = step!(
        "list by an unknown id",
        client.list_containers(v1::ListContainersRequest {
            filter: Some(v1::ContainerFilter { id: "nobody".into(), ..Default::default() })
        })
    );
    let _ = step!(
        "checkpoint",
        client.checkpoint_container(v1::CheckpointContainerRequest {
            container_id: made.clone(),
            ..Default::default()
        })
    );
    let _ =
        step!("remove", client.remove_container(v1::RemoveContainerRequest { container_id: made.clone() }));
    let _ = step!(
        "remove again",
        client.remove_container(v1::RemoveContainerRequest { container_id: made.clone() })
    );
    let _ = step!(
        "remove of the pod",
        client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: pod.clone() })
    );
    let _ = step!(
        "remove of the pod again",
        client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: pod.clone() })
    );
    let _ = (Regex::new("x"), ids, Status::ok(""));
    seen
}

#[allow(unused)]
fn unused(_: Client) {}
