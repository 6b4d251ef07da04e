//! Upgrades without a gap: a successor takes the socket that systemd passed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::ExecSyncRequest;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use super::calls::{call_at_rate, succeeds};
use super::{EXTENSION, Service, send, successor_in};
use crate::procrun::{Runtime, until};
use crate::program::Place;

/// Waits until a process has ended, also one that is not a child of this process.
async fn gone(pid: u32) {
    let gone = async {
        while Path::new("/proc").join(pid.to_string()).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(gone).await;
}

/// A call in flight that the test ends.
struct SlowCall {
    release: PathBuf,
    ended: JoinHandle<()>,
}

impl SlowCall {
    /// Starts the call, and waits until its command runs.
    async fn start(service: &Service, runtime: &Runtime, container: &str) -> Self {
        let (release, began) = (runtime.path("release"), runtime.path("began"));
        let script =
            format!("touch {}; until [ -e {} ]; do sleep 0.01; done", began.display(), release.display());
        let (mut client, request) = (runtime_client(&service.socket()), request(container, &script));
        let ended = tokio::spawn(async move {
            assert_eq!(client.exec_sync(request).await.unwrap().into_inner().exit_code, 0);
        });
        until(async || began.exists().then_some(())).await;
        Self { release, ended }
    }

    /// Lets the command end, and asserts that the call succeeds.
    async fn end(self) {
        assert!(!self.ended.is_finished());
        fs::write(&self.release, "").unwrap();
        soon(self.ended).await.unwrap();
    }
}

fn request(container: &str, script: &str) -> ExecSyncRequest {
    let cmd = ["sh", "-c", script].map(str::to_owned).into();
    ExecSyncRequest { container_id: container.to_owned(), cmd, timeout: 0 }
}

/// Starts a container, and a service with additional flags and variables in front of its runtime.
async fn start(more: &[&str], environment: &str) -> (Runtime, String, Service) {
    let mut runtime = Runtime::start();
    let container = runtime.runs("sleep 1000").await;
    let service = Service::start_in(runtime.socket.as_path(), more, environment).await;
    (runtime, container, service)
}

async fn end(service: Service, mut runtime: Runtime, container: &str) {
    drop(service);
    runtime.stop(container, 0).await;
    runtime.end().await;
}

/// Asserts that a call on a new connection succeeds.
async fn answers(service: &Service, container: &str) {
    soon(succeeds(&mut runtime_client(&service.socket()), container)).await;
}

#[tokio::test]
async fn a_successor_serves_new_calls_while_a_call_in_flight_finishes_in_the_old_process() {
    let (runtime, container, service) = start(&[], "").await;
    let old = service.pid().await;
    service.notified().await;
    let slow = SlowCall::start(&service, &runtime, &container).await;

    let new = service.hand_over(old).await;
    assert_ne!(old, new);
    assert_eq!(service.pid().await, new);
    answers(&service, &container).await;
    slow.end().await;
    end(service, runtime, &container).await;
}

#[tokio::test]
async fn the_old_process_serves_new_calls_until_the_successor_does() {
    let (runtime, container, service) = start(&[], "").await;
    let old = service.pid().await;
    service.notified().await;
    let [program, began, go] = ["program", "began", "go"].map(|name| service.place.at(name));
    fs::rename(&service.program, &program).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || exec {program} --version\necho $$ >{began}\n\
         until [ -e {go} ]; do sleep 0.01; done\nexec {program} \"$@\"\n",
        program = program.display(),
        began = began.display(),
        go = go.display()
    );
    fs::write(&service.program, script).unwrap();
    fs::set_permissions(&service.program, fs::Permissions::from_mode(0o755)).unwrap();
    send(old, Signal::USR2);
    let new: u32 = until(async || fs::read_to_string(&began).ok()?.trim().parse().ok()).await;
    for _ in 0..5 {
        answers(&service, &container).await;
    }
    fs::write(go, "").unwrap();
    assert!(service.notified().await.starts_with("READY=1"), "the successor serves first");
    assert_eq!(successor_in(&service.notified().await), Some(new));
    assert_eq!(service.pid().await, new);
    answers(&service, &container).await;
    end(service, runtime, &container).await;
}

/// Replaces the program of a service by a script.
fn replace_program(service: &Service, script: &str) {
    let new = service.place.at("new");
    fs::write(&new, script).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, &service.program).unwrap();
}

#[tokio::test]
async fn a_process_whose_successor_ends_during_its_start_serves_on_and_can_be_replaced_later() {
    for mode in [&[][..], &["--enforce", "restart"]] {
        let (runtime, container, service) = start(mode, "").await;
        let old = service.pid().await;
        service.notified().await;
        let program = service.place.at("program");
        fs::hard_link(&service.program, &program).unwrap();
        replace_program(&service, "#!/bin/sh\n[ \"$1\" = --version ]\n");
        let slow = SlowCall::start(&service, &runtime, &container).await;
        send(old, Signal::USR2);
        service.running.logged("no successor has started: this process continues to serve").await;
        assert_eq!(service.pid().await, old);
        answers(&service, &container).await;
        slow.end().await;
        // Calls are still recorded.
        let ids = || recorded_ids(&service.place.at("state"));
        let before = ids();
        answers(&service, &container).await;
        until(async || (ids().len() > before.len()).then_some(())).await;

        fs::rename(program, &service.program).unwrap();
        let new = service.hand_over(old).await;
        assert_eq!(service.pid().await, new);
        answers(&service, &container).await;
        end(service, runtime, &container).await;
    }
}

/// Returns the ids of the ExecSyncs in the records of a state directory.
fn recorded_ids(state: &Path) -> Vec<u64> {
    let mut ids = Vec::new();
    for file in fs::read_dir(state.join("calls")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            // The last line may be incomplete, because it is being written.
            let text = fs::read_to_string(path).unwrap();
            let calls = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            for call in calls {
                if call["method"] == "ExecSync" {
                    ids.push(call["id"].as_u64().unwrap());
                }
            }
        }
    }
    ids
}

#[tokio::test]
async fn each_call_of_several_upgrades_during_one_call_is_recorded_with_an_id_of_its_own() {
    let (runtime, container, service) = start(&[], "").await;
    let mut pid = service.pid().await;
    service.notified().await;
    let slow = SlowCall::start(&service, &runtime, &container).await;
    for _ in 0..3 {
        answers(&service, &container).await;
        pid = service.hand_over(pid).await;
        answers(&service, &container).await;
    }
    slow.end().await;
    let state = service.place.at("state");
    until(async || (recorded_ids(&state).len() >= 7).then_some(())).await;
    let ids = recorded_ids(&state);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 7, "{ids:?}");
    assert_eq!(ids.len(), 7, "{ids:?}");
    end(service, runtime, &container).await;
}

#[tokio::test]
async fn a_successor_that_waits_for_the_state_answers_the_watchdog_and_then_serves() {
    let (runtime, container, service) = start(&["--enforce", "restart"], "WATCHDOG_USEC=100000").await;
    let old = service.pid().await;
    service.notified().await;
    let slow = SlowCall::start(&service, &runtime, &container).await;

    let new = service.begin_hand_over(old).await;
    service.running.logged("waiting for the end of the predecessor, which has the state").await;
    // The old process answers no more, so these are answers of the successor.
    let mut answered = 0;
    while answered < 3 {
        match service.notification().await.as_str() {
            "WATCHDOG=1" => answered += 1,
            // The successor has extended the time of its start before it waits.
            other => assert!(other.starts_with(EXTENSION), "{other}"),
        }
    }
    slow.end().await;
    assert!(service.notified().await.starts_with("READY=1"));
    assert_eq!(service.pid().await, new);
    answers(&service, &container).await;
    end(service, runtime, &container).await;
}

#[tokio::test]
async fn a_successor_that_has_just_started_can_be_replaced() {
    let (runtime, container, service) = start(&[], "").await;
    let mut pid = service.pid().await;
    let mut pids = BTreeSet::from([pid]);
    for _ in 0..5 {
        pid = service.begin_hand_over(pid).await;
        assert!(pids.insert(pid));
    }
    assert_eq!(service.pid().await, pid);
    answers(&service, &container).await;
    end(service, runtime, &container).await;
}

#[tokio::test]
async fn an_upgrade_that_changes_a_symbolic_link_starts_the_new_program() {
    let runtime = Runtime::start();
    let place = Place::new();
    let (old, new, link) = (place.at("probeshim-1"), place.at("probeshim-2"), place.at("link"));
    fs::rename(place.copied_program(), &old).unwrap();
    fs::hard_link(&old, &new).unwrap();
    symlink(&old, &link).unwrap();
    let service = Service::start_program(place, link.clone(), runtime.socket.as_path(), &[], "").await;
    fs::remove_file(&link).unwrap();
    symlink(&new, &link).unwrap();
    let pid = service.hand_over(service.pid().await).await;
    assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), new);
    drop(service);
    runtime.end().await;
}

#[tokio::test]
async fn a_signal_ends_the_process_while_the_new_program_is_checked() {
    let runtime = Runtime::start();
    let mut service = Service::start(runtime.socket.as_path(), &[]).await;
    let checked = service.place.at("checked");
    fs::remove_file(&service.program).unwrap();
    let script = format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", checked.display());
    fs::write(&service.program, script).unwrap();
    fs::set_permissions(&service.program, fs::Permissions::from_mode(0o755)).unwrap();
    service.running.signal(Signal::USR2);
    let check = until(async || fs::read_to_string(&checked).ok()?.trim().parse().ok()).await;
    service.running.signal(Signal::TERM);
    assert_eq!(service.running.ended().await, Some(0));
    service.running.logged("signal received: draining").await;
    gone(check).await;
    runtime.end().await;
}

#[tokio::test]
async fn no_call_fails_in_twenty_upgrades_under_continuous_calls() {
    let (runtime, container, service) = start(&[], "").await;
    service.notified().await;
    let done = Arc::new(AtomicBool::new(false));
    // A client with one connection, as a kubelet is, and one that connects for each call. A third
    // starts a hundred calls per second.
    let mut clients: Vec<_> = [true, false]
        .into_iter()
        .map(|keeps| {
            let (socket, container, done) = (service.socket(), container.clone(), done.clone());
            tokio::spawn(async move {
                let (mut client, mut calls) = (runtime_client(&socket), 0_usize);
                while !done.load(Ordering::Relaxed) {
                    if !keeps {
                        client = runtime_client(&socket);
                    }
                    succeeds(&mut client, &container).await;
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    clients.push(tokio::spawn(call_at_rate(service.socket(), container.clone(), done.clone())));
    let mut pid = service.pid().await;
    let mut pids = BTreeSet::from([pid]);
    for _ in 0..20 {
        pid = service.hand_over(pid).await;
        assert_eq!(service.pid().await, pid);
        pids.insert(pid);
    }
    assert_eq!(pids.len(), 21);
    done.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(soon(client).await.unwrap() > 20);
    }
    for old in pids.iter().filter(|old| **old != pid) {
        // The first one is a child of this process, which waits for it below.
        if *old != service.running.process.id() {
            gone(*old).await;
        }
    }
    end(service, runtime, &container).await;
}

#[tokio::test]
async fn a_program_that_does_not_run_takes_over_nothing() {
    let runtime = Runtime::start();
    let service = Service::start(runtime.socket.as_path(), &[]).await;
    let pid = service.pid().await;
    fs::remove_file(&service.program).unwrap();
    fs::write(&service.program, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&service.program, fs::Permissions::from_mode(0o755)).unwrap();
    service.running.signal(Signal::USR2);
    let line = service.running.logged("SIGUSR2 is ignored: no successor can be started").await;
    let reason = format!("{} --version ended with exit status: 3", service.program.display());
    assert_eq!(line["error"].as_str(), Some(&*reason), "{line}");
    assert_eq!(service.pid().await, pid);
    drop(service);
    runtime.end().await;
}

#[tokio::test]
async fn a_socket_that_systemd_did_not_pass_is_not_handed_over() {
    let place = Place::new();
    let (running, runtime) = place.start_with_runtime(&[]).await;
    running.signal(Signal::USR2);
    running
        .logged(
            "SIGUSR2 is ignored: a successor takes over only a socket that systemd passes (LISTEN_FDS); restart \
             probeshim instead",
        )
        .await;
    crate::program::serves(&running, &runtime).await;
}
