//! `probeshim runtime`, as people start it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use probeshim::cri::runtime_service;
use probeshim::cri::v1::*;
use probeshim::procrun::{Procrun, WARNING};
use probeshim::socket::SocketPath;
use rustix::process::Signal;

use super::{processes_of, settings, shell, until};
use crate::program::{Place, Running};
use crate::support::soon;

fn command(place: &Place, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("runtime").arg("--listen").arg(place.at("procrun.sock")).arg("--root").arg(place.at("root"));
    command.args(more);
    command
}

async fn start(place: &Place) -> Running {
    let (out, log) = (fs::File::create(place.at("out")).unwrap(), place.at("log"));
    let process = command(place, &[]).stdout(out).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let running = Running { process, socket: place.at("procrun.sock"), log };
    running.logged("procrun started").await;
    running
}

/// A container with a process that has gone far; returns how many processes there are.
async fn populate(place: &Place) -> usize {
    let folder = place.at("").canonicalize().unwrap();
    let mut client = runtime_service(&SocketPath::new(&place.at("procrun.sock")).unwrap());
    let metadata = PodSandboxMetadata { name: "pod".into(), namespace: "it".into(), ..Default::default() };
    let config = PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
    let pod_sandbox_id = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let script = "setsid sh -c 'echo > far; sleep 1000' & trap '' TERM; while ! test -s far; do sleep 0.01; done; echo > near; sleep 1000";
    let request = CreateContainerRequest {
        pod_sandbox_id,
        config: Some(shell("main", script)),
        sandbox_config: Some(config),
    };
    let container_id = client.create_container(request).await.unwrap().into_inner().container_id;
    client.start_container(StartContainerRequest { container_id: container_id.clone() }).await.unwrap();
    let near = folder.join("root/procrun-containers").join(container_id).join("near");
    until(|| async { near.exists().then_some(()) }).await;
    processes_of(&folder).len()
}

#[tokio::test]
async fn it_warns_first_serves_its_owner_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut runtime = start(&place).await;
    assert_eq!(fs::read_to_string(place.at("out")).unwrap().lines().next(), Some(WARNING));
    assert_eq!(fs::metadata(&runtime.socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(populate(&place).await >= 4);
    runtime.signal(Signal::TERM);
    assert_eq!(runtime.ended().await, Some(0));
    assert_eq!(processes_of(&place.at("")), Vec::<String>::new());
    assert!(!runtime.socket.exists() && !place.at("root/procrun-containers").exists());
}

#[tokio::test]
async fn killed_it_leaves_no_process_behind_and_its_successor_no_folder() {
    let place = Place::new();
    let mut runtime = start(&place).await;
    populate(&place).await;
    fs::write(place.at("root/mine"), "kept").unwrap();
    runtime.signal(Signal::KILL);
    runtime.ended().await;
    until(|| async { processes_of(&place.at("")).is_empty().then_some(()) }).await;
    let mut second = start(&place).await;
    assert_eq!(fs::read_dir(place.at("root/procrun-containers")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(place.at("root/mine")).unwrap(), "kept");
    second.signal(Signal::INT);
    assert_eq!(second.ended().await, Some(0));
}

#[tokio::test]
async fn a_process_that_left_its_group_is_reported_when_it_ends() {
    let place = Place::new();
    let runtime = start(&place).await;
    populate(&place).await;
    let mut client = runtime_service(&SocketPath::new(&place.at("procrun.sock")).unwrap());
    let containers = client.list_containers(ListContainersRequest::default()).await.unwrap();
    let container_id = containers.into_inner().containers.remove(0).id;
    let cmd = ["sh", "-c", "setsid sh -c 'exit 9' >/dev/null 2>&1 & true"].map(str::to_owned).into();
    client.exec_sync(ExecSyncRequest { container_id, cmd, timeout: 0 }).await.unwrap();
    let line = runtime.logged("a process that had left its process group has ended").await;
    assert_eq!((line["exit"].as_i64(), line["program"].as_str()), (Some(9), Some("sh")), "{line}");
}

#[tokio::test]
async fn wrong_usage_and_places_that_are_taken_are_named() {
    let place = Place::new();
    let answer = async |more: &[&str]| {
        let mut command = command(&place, more);
        let output = command.stdin(Stdio::null()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = answer(&["--synthetic", "many", "--exec-delay", "soon"]).await;
    assert!(
        code == Some(2) && told.contains("--synthetic \"many\"") && told.contains("--exec-delay \"soon\""),
        "{told}"
    );
    let _procrun = Procrun::new(settings(&place.at(""))).unwrap();
    let (code, told) = answer(&[]).await;
    assert!(
        code == Some(1)
            && told.contains("--root: cannot use")
            && told.contains("another procrun works there"),
        "{told}"
    );
    fs::write(place.at("file"), "").unwrap();
    let file = place.at("file/root");
    let (code, told) = answer(&["--root", file.to_str().unwrap()]).await;
    assert!(code == Some(2) || told.contains("file"), "{told}");
    soon(async {}).await;
}
