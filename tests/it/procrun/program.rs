//! `probeshim runtime`, started as users start it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use fixtures::need;
use fixtures::wait::soon;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::*;
use probeshim::procrun::{Procrun, WARNING};
use probeshim::socket::SocketPath;
use rustix::process::Signal;

use super::{Client, processes_of, settings, shell, until};
use crate::program::{Answer, Place, Running, is_root};

fn command(place: &Place, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("runtime").arg("--listen").arg(place.at("procrun.sock")).arg("--root").arg(place.at("root"));
    command.args(more);
    command
}

async fn start(place: &Place) -> Running {
    let mut command = command(place, &[]);
    command.stdout(fs::File::create(place.at("out")).unwrap());
    spawn(place, command).await
}

async fn spawn(place: &Place, mut command: Command) -> Running {
    let log = place.at("log");
    let process = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let running = Running { process, socket: place.at("procrun.sock"), log };
    running.logged("procrun started").await;
    running
}

/// Runs a container with a process in another session, and returns a client and the container's id.
async fn populate(place: &Place) -> (Client, String) {
    let folder = place.at("").canonicalize().unwrap();
    let mut client = runtime_client(&SocketPath::new(&place.at("procrun.sock")).unwrap());
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
    let near = folder.join("root/procrun-containers").join(&container_id).join("near");
    until(|| async { near.exists().then_some(()) }).await;
    (client, container_id)
}

#[tokio::test]
async fn procrun_prints_a_warning_serves_its_owner_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut runtime = start(&place).await;
    assert_eq!(fs::read_to_string(place.at("out")).unwrap().lines().next(), Some(WARNING));
    assert_eq!(fs::metadata(&runtime.socket).unwrap().permissions().mode() & 0o777, 0o600);
    populate(&place).await;
    assert!(processes_of(&place.at("")).len() >= 4);
    runtime.signal(Signal::TERM);
    assert_eq!(runtime.ended().await, Some(0));
    assert_eq!(processes_of(&place.at("")), Vec::<String>::new());
    assert!(!runtime.socket.exists() && !place.at("root/procrun-containers").exists());
}

#[tokio::test]
async fn a_killed_procrun_leaves_no_process_and_its_successor_removes_its_directories() {
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
    let (mut client, container_id) = populate(&place).await;
    // The process leaves the group before the command ends. The group is killed with the command,
    // and the process ends later.
    let left = place.at("left");
    let left = left.display();
    let waits = "while kill -0 $0 2>/dev/null; do sleep 0.01; done";
    let script = format!(
        "setsid sh -c 'touch {left}; {waits}; exit 9' $$ >/dev/null 2>&1 & while [ ! -e {left} ]; do sleep 0.01; done"
    );
    let cmd = ["sh", "-c", &script].map(str::to_owned).into();
    client.exec_sync(ExecSyncRequest { container_id, cmd, timeout: 0 }).await.unwrap();
    let line = runtime.logged("process that had left the container's process groups exited").await;
    assert_eq!((line["exit"].as_i64(), line["program"].as_str()), (Some(9), Some("sh")), "{line}");
}

#[tokio::test]
async fn procrun_reports_wrong_usage_and_directories_in_use() {
    let place = Place::new();
    for (flag, value, told) in [
        ("--synthetic", "many", "'many' for '--synthetic <N>': must be a whole number from 0 to 100000"),
        ("--exec-delay", "soon", "'soon' for '--exec-delay <DURATION>': must be a duration from 0s to 24h"),
    ] {
        let answer = Answer::to(command(&place, &[flag, value])).await;
        assert!(answer.code == Some(2) && answer.stderr.contains(told), "{answer:?}");
    }
    fs::write(place.at("file"), "").unwrap();
    let mut blocked = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    blocked.arg("runtime").arg("--listen").arg(place.at("a.sock")).arg("--root").arg(place.at("file/root"));
    let answer = Answer::to(blocked).await;
    let told = format!(
        "error: --root: cannot use {}: Not a directory (os error 20)\n",
        place.at("file/root").display()
    );
    assert_eq!((answer.code, answer.stderr), (Some(1), told));
    let _procrun = Procrun::new(settings(&place.at(""))).unwrap();
    let answer = Answer::to(command(&place, &[])).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("another procrun uses this directory"), "{answer:?}");
}

#[tokio::test]
async fn a_container_inherits_nothing_from_the_process_that_started_procrun() {
    let place = Place::new();
    let inner = command(&place, &[]);
    let words: Vec<_> = std::iter::once(inner.get_program()).chain(inner.get_args()).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let mut outer = Command::new("sh");
    let script =
        format!("trap '' QUIT HUP USR1 CHLD WINCH XFSZ; umask 077; exec {} 7</etc/passwd", words.join(" "));
    outer.args(["-c", &script]).stdout(Stdio::null());
    let runtime = spawn(&place, outer).await;
    let (mut client, container_id) = populate(&place).await;
    let script = "ls /proc/self/fd | wc -l; umask; sed -n 's/^SigIgn:\t//p' /proc/self/status";
    let cmd = ["sh", "-c", script].map(str::to_owned).into();
    let answer = client.exec_sync(ExecSyncRequest { container_id, cmd, timeout: 0 }).await.unwrap();
    let said = String::from_utf8(answer.into_inner().stdout).unwrap();
    // In addition to the three streams, ls has a descriptor of the directory.
    let ignored = said.strip_prefix("4\n0022\n").unwrap_or_else(|| panic!("{said}"));
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    // Signals above 31 belong to the C library.
    assert_eq!(ignored & 0x7fff_ffff, 0, "{ignored:x}");
    runtime.signal(Signal::TERM);
}

#[tokio::test]
async fn procrun_ends_properly_on_sighup() {
    let place = Place::new();
    // The tests may run with SIGHUP ignored, as under nohup, and child processes would inherit
    // that.
    let started = command(&place, &[]);
    let mut heeding = Command::new("env");
    heeding.arg("--default-signal=HUP").arg(started.get_program()).args(started.get_args());
    let mut runtime = spawn(&place, heeding).await;
    populate(&place).await;
    runtime.signal(Signal::HUP);
    assert_eq!(runtime.ended().await, Some(0));
    assert_eq!(processes_of(&place.at("")), Vec::<String>::new());
    assert!(!runtime.socket.exists() && !place.at("root/procrun-containers").exists());
}

#[tokio::test]
async fn a_container_directory_without_permissions_is_removed_nevertheless() {
    need!(is_root());
    let place = Place::new();
    let mut nobody = Command::new(place.copied_program());
    nobody.arg("runtime").arg("--listen").arg(place.at("procrun.sock")).arg("--root").arg(place.at("root"));
    nobody.uid(65_534).gid(65_534).stdout(Stdio::null());
    let mut runtime = spawn(&place, nobody).await;
    let (mut client, container_id) = populate(&place).await;
    let cmd = ["sh", "-c", "mkdir -p a/b; touch a/b/c; chmod 500 a a/b"].map(str::to_owned).into();
    client.exec_sync(ExecSyncRequest { container_id: container_id.clone(), cmd, timeout: 0 }).await.unwrap();
    let request = RemoveContainerRequest { container_id: container_id.clone() };
    soon(client.remove_container(request)).await.unwrap();
    assert!(!place.at("root/procrun-containers").join(container_id).exists());
    runtime.signal(Signal::TERM);
    assert_eq!(runtime.ended().await, Some(0));
}

#[tokio::test]
async fn an_ended_container_holds_no_descriptors() {
    let place = Place::new();
    let runtime = start(&place).await;
    let (mut client, container_id) = populate(&place).await;
    let open = || fs::read_dir(format!("/proc/{}/fd", runtime.process.id())).unwrap().count();
    let before = open();
    soon(client.stop_container(StopContainerRequest { container_id, timeout: 0 })).await.unwrap();
    // Two pipes, the socket of its monitor, and the descriptor that reports the end of the monitor.
    until(|| async { (open() <= before - 4).then_some(()) }).await;
}
