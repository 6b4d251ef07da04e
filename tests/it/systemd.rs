//! probeshim as a service of systemd: notifications, the watchdog, and upgrades without a gap.

mod api_addresses;
mod calls;
mod handover;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::admin::Client as AdminClient;
use probeshim::admin::api::Status;
use probeshim::socket::SocketPath;
use procfs::process::all_processes;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixDatagram;

use crate::playing::{POLITE, pod};
use crate::procrun::Runtime;
use crate::program::{Answer, Place, Running};

/// Notification of the progress of a start.
const EXTENSION: &str = "EXTEND_TIMEOUT_USEC=";

/// A probeshim whose socket and notifications belong to a stand-in for systemd.
struct Service {
    place: Place,
    program: PathBuf,
    notifications: UnixDatagram,
    running: Running,
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
        Self::start_program(place, program, runtime, more, environment).await
    }

    /// Starts this program.
    async fn start_program(
        place: Place,
        program: PathBuf,
        runtime: &Path,
        more: &[&str],
        environment: &str,
    ) -> Self {
        let notifications = UnixDatagram::bind(place.at("notify.sock")).unwrap();
        let passed = UnixListener::bind(place.at("shim.sock")).unwrap();
        let http = if more.contains(&"--http") { "" } else { "--http off" };
        let script = format!(
            "exec 3<&0 </dev/null; {environment} NOTIFY_SOCKET={} LISTEN_FDS=1 LISTEN_PID=$$ exec {} run --upstream {} \
             --admin {} --config {} --state-dir {} {http} {}",
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
        Self { place, program, notifications, running }
    }

    fn socket(&self) -> SocketPath {
        SocketPath::new(&self.running.socket).unwrap()
    }

    /// Returns the next notification. Answers to the watchdog and progress of the start are left
    /// out.
    async fn notified(&self) -> String {
        loop {
            let text = self.notification().await;
            if text != "WATCHDOG=1" && !text.starts_with(EXTENSION) {
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
        send(pid, Signal::USR2);
        let mut successor = None;
        let mut is_ready = false;
        while successor.is_none() || !is_ready {
            let text = self.notified().await;
            successor = successor.or(successor_in(&text));
            is_ready |= text.starts_with("READY=1");
        }
        successor.unwrap()
    }

    /// Sends SIGUSR2 to a process, and returns the pid of its successor once systemd would signal
    /// it.
    async fn begin_hand_over(&self, pid: u32) -> u32 {
        send(pid, Signal::USR2);
        loop {
            if let Some(pid) = successor_in(&self.notified().await) {
                return pid;
            }
        }
    }
}

/// Returns the pid of a successor in a notification.
fn successor_in(notification: &str) -> Option<u32> {
    let pid = notification.lines().find_map(|line| line.strip_prefix("MAINPID="))?;
    Some(pid.parse().unwrap())
}

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

impl Drop for Service {
    /// Ends the successors, which are no children of the test.
    fn drop(&mut self) {
        let directory = self.program.parent().unwrap();
        for process in all_processes().unwrap().flatten() {
            if process.exe().is_ok_and(|program| program.starts_with(directory)) {
                let _ = kill_process(Pid::from_raw(process.pid).unwrap(), Signal::KILL);
            }
        }
    }
}

#[tokio::test]
async fn systemd_is_notified_when_clients_are_served_and_when_the_drain_starts() {
    let runtime = Runtime::start();
    let mut service = Service::start(runtime.socket.as_path(), &[]).await;
    // The parts of a slow start have a limit each.
    for _ in 0..3 {
        assert_eq!(service.notification().await, format!("{EXTENSION}60000000"));
    }
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
async fn play_notifies_systemd_and_neither_its_command_nor_its_containers_can() {
    let place = Place::new();
    let notifications = UnixDatagram::bind(place.at("notify.sock")).unwrap();
    fs::write(place.at("pods.yaml"), pod("a", POLITE, "", "")).unwrap();
    let script =
        format!("kill -USR2 $PPID; env; {} exec --namespace test a -- env", env!("CARGO_BIN_EXE_probeshim"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("play").arg(place.at("pods.yaml")).args(["--runtime", "procrun", "--http", "off"]);
    command.arg("--config").arg(place.at("config.yaml")).arg("--listen").arg(place.at("probeshim.sock"));
    command.arg("--admin").arg(place.at("admin.sock")).args(["--", "sh", "-c", &script]);
    command.env("NOTIFY_SOCKET", place.at("notify.sock")).env("WATCHDOG_USEC", "3600000000");
    let answer = Answer::to(command).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for environment in ["PROBESHIM_ADMIN=", "HOSTNAME=a\n"] {
        assert!(answer.stdout.contains(environment), "{answer:?}");
    }
    for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC"] {
        assert!(!answer.stdout.contains(variable), "{answer:?}");
    }
    assert!(answer.stderr.contains("SIGUSR2 is ignored: play has no successor"), "{answer:?}");
    let mut received = Vec::new();
    let mut buffer = [0; 512];
    while let Ok(length) = notifications.try_recv(&mut buffer) {
        received.push(String::from_utf8_lossy(&buffer[..length]).lines().next().unwrap().to_owned());
    }
    received.retain(|text| text != "WATCHDOG=1" && !text.starts_with(EXTENSION));
    assert_eq!(received, ["READY=1", "STOPPING=1"]);
}
