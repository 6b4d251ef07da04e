//! probeshim as a service of systemd: notifications, the watchdog, and upgrades without a gap.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::admin::Client as AdminClient;
use probeshim::admin::api::Status;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::ExecSyncRequest;
use probeshim::socket::SocketPath;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixDatagram;

use crate::procrun::Runtime;
use crate::program::{Place, Running};

/// A probeshim whose socket and notifications belong to a stand-in for systemd.
struct Service {
    place: Place,
    program: PathBuf,
    notifications: UnixDatagram,
    running: Running,
    /// Processes that took over, which are killed at the end.
    successors: Arc<Mutex<BTreeSet<u32>>>,
}

impl Service {
    /// Starts a copy of the program that can be replaced, in front of a runtime.
    async fn start(runtime: &Path, more: &[&str]) -> Self {
        Self::start_in(runtime, more, "").await
    }

    /// Starts it with assignments of environment variables.
    async fn start_in(runtime: &Path, more: &[&str], environment: &str) -> Self {
        let place = Place::new();
        let program = place.copied_program();
        let notifications = UnixDatagram::bind(place.at("notify.sock")).unwrap();
        let passed = UnixListener::bind(place.at("shim.sock")).unwrap();
        let script = format!(
            "exec 3<&0 </dev/null; {environment} NOTIFY_SOCKET={} LISTEN_FDS=1 LISTEN_PID=$$ exec {} run --upstream {} \
             --admin {} --config {} --state-dir {} --http off --watch-runtime off {}",
            place.at("notify.sock").display(),
            program.display(),
            runtime.display(),
            place.at("admin.sock").display(),
            place.at("config.yaml").display(),
            place.at("state").display(),
            more.join(" ")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::from(OwnedFd::from(passed)));
        let running = place.spawn(&mut command).await;
        Self { place, program, notifications, running, successors: Arc::default() }
    }

    fn socket(&self) -> SocketPath {
        SocketPath::new(&self.running.socket).unwrap()
    }

    /// Returns the next notification. Answers to the watchdog are left out.
    async fn notified(&self) -> String {
        loop {
            let text = self.notification().await;
            if text != "WATCHDOG=1" {
                return text;
            }
        }
    }

    async fn notification(&self) -> String {
        let mut buffer = [0; 512];
        let length = soon(self.notifications.recv(&mut buffer)).await.unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    }

    /// Returns the pid of the process that answers on the admin socket.
    async fn pid(&self) -> u32 {
        let client = AdminClient::new(SocketPath::new(&self.place.at("admin.sock")).unwrap());
        let answer = async {
            loop {
                if let Ok(status) = client.status().await {
                    return serde_json::from_slice::<Status>(&status).unwrap().pid;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(answer).await
    }

    /// Sends SIGUSR2 to a process, and returns the pid of its successor once that is ready.
    async fn hand_over(&self, pid: u32) -> u32 {
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::USR2).unwrap();
        let mut successor = None;
        let mut is_ready = false;
        while successor.is_none() || !is_ready {
            let text = self.notified().await;
            if let Some(pid) = text.strip_prefix("MAINPID=") {
                let pid = pid.parse().unwrap();
                self.successors.lock().unwrap().insert(pid);
                successor = Some(pid);
            }
            is_ready |= text.starts_with("READY=1");
        }
        successor.unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for pid in self.successors.lock().unwrap().iter() {
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
        }
    }
}

/// Waits until a process has ended, also one that is not a child of this process.
async fn gone(pid: u32) {
    let gone = async {
        while Path::new("/proc").join(pid.to_string()).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(gone).await;
}

#[tokio::test]
async fn systemd_is_notified_when_clients_are_served_and_when_the_drain_starts() {
    let runtime = Runtime::start();
    let mut service = Service::start(runtime.socket.as_path(), &[]).await;
    let ready = service.notified().await;
    let expected = format!("READY=1\nSTATUS=serving unix://{}", service.running.socket.display());
    assert!(ready.starts_with(&expected), "{ready}");
    service.running.signal(Signal::TERM);
    assert_eq!(service.notified().await, "STOPPING=1\nSTATUS=draining");
    assert_eq!(service.running.ended().await, Some(0));
    runtime.end().await;
}

#[tokio::test]
async fn the_watchdog_of_systemd_is_answered() {
    let runtime = Runtime::start();
    let service = Service::start_in(runtime.socket.as_path(), &[], "WATCHDOG_USEC=100000").await;
    service.running.logged("systemd watches this process").await;
    let mut answers = 0;
    while answers < 3 {
        answers += u32::from(service.notification().await == "WATCHDOG=1");
    }
    drop(service);
    runtime.end().await;
}

#[tokio::test]
async fn a_successor_serves_new_calls_while_a_call_in_flight_finishes_in_the_old_process() {
    let mut runtime = Runtime::start();
    let container = runtime.runs("sleep 1000").await;
    let service = Service::start(runtime.socket.as_path(), &[]).await;
    let old = service.pid().await;
    service.notified().await;
    let release = runtime.path("release");
    let began = runtime.path("began");
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.01; done", began.display(), release.display());
    let mut client = runtime_client(&service.socket());
    let request = |script: &str| ExecSyncRequest {
        container_id: container.clone(),
        cmd: ["sh", "-c", script].map(str::to_owned).into(),
        timeout: 0,
    };
    let slow = request(&script);
    let in_flight = tokio::spawn(async move { client.exec_sync(slow).await });
    crate::procrun::until(|| async { began.exists().then_some(()) }).await;

    let new = service.hand_over(old).await;
    assert_ne!(old, new);
    assert_eq!(service.pid().await, new);
    let answer = soon(runtime_client(&service.socket()).exec_sync(request("echo new"))).await.unwrap();
    assert_eq!(answer.into_inner().stdout, b"new\n");
    assert!(!in_flight.is_finished());
    fs::write(&release, "").unwrap();
    assert_eq!(soon(in_flight).await.unwrap().unwrap().into_inner().exit_code, 0);
    drop(service);
    runtime.stop(&container, 0).await;
    runtime.end().await;
}

#[tokio::test]
async fn no_call_fails_in_twenty_upgrades_under_continuous_calls() {
    let mut runtime = Runtime::start();
    let container = runtime.runs("sleep 1000").await;
    let service = Service::start(runtime.socket.as_path(), &[]).await;
    service.notified().await;
    let done = Arc::new(AtomicBool::new(false));
    // Clients with long connections, as a kubelet has one, and one that connects for each call.
    let clients: Vec<_> = [true, true, true, false]
        .into_iter()
        .map(|keeps| {
            let (socket, container, done) = (service.socket(), container.clone(), done.clone());
            tokio::spawn(async move {
                let (mut client, mut calls) = (runtime_client(&socket), 0_u32);
                while !done.load(Ordering::Relaxed) {
                    if !keeps {
                        client = runtime_client(&socket);
                    }
                    let cmd = vec!["true".to_owned()];
                    let request = ExecSyncRequest { container_id: container.clone(), cmd, timeout: 0 };
                    match client.exec_sync(request).await {
                        Ok(_) => {}
                        Err(status) if was_not_sent(&status) => continue,
                        Err(status) => panic!("call {calls} failed: {status}"),
                    }
                    calls += 1;
                }
                calls
            })
        })
        .collect();
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
    drop(service);
    runtime.stop(&container, 0).await;
    runtime.end().await;
}

/// Returns whether the client's library gave a call up before it sent a byte of it: the connection
/// was closed in order while the call waited for it. grpc-go, which kubelets use, sends such a call
/// on its next connection by itself.
fn was_not_sent(status: &tonic::Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        source = error.source();
    }
    false
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
