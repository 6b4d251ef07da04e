//! The two processes of an attack: the stub, and probeshim in front of it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::STUB_ARGUMENT;

/// A process that serves a socket and is killed when dropped.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) socket: PathBuf,
    process: Child,
}

/// A stub and a probeshim for one attack, unaffected by earlier attacks. The environment variable
/// `PROBESHIM` can name another program to attack.
#[derive(Debug)]
pub(crate) struct Processes {
    pub(crate) shim: Served,
    pub(crate) stub: Served,
    _directory: TempDir,
}

impl Processes {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Starts both processes. probeshim has this configuration file.
    pub(crate) fn start_with(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(STUB_ARGUMENT).arg(at("stub.sock"));
        let stub = Served::start(&at("stub.sock"), command);
        fs::write(at("config.yaml"), config).unwrap();
        let program = std::env::var_os("PROBESHIM").unwrap_or_else(|| env!("CARGO_BIN_EXE_probeshim").into());
        let mut command = Command::new(program);
        command
            .args(["run", "--log", "error", "--http", "off", "--watch-runtime", "off", "--admin"])
            .arg(at("admin.sock"))
            .arg("--state-dir")
            .arg(at("state"))
            .arg("--config")
            .arg(at("config.yaml"))
            .arg("--listen")
            .arg(at("shim.sock"))
            .arg("--upstream")
            .arg(&stub.socket);
        let shim = Served::start(&at("shim.sock"), command);
        Self { shim, stub, _directory: directory }
    }
}

impl Served {
    fn start(socket: &Path, mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        while UnixStream::connect(socket).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "{command:?} ended");
            #[expect(clippy::disallowed_methods, reason = "another process is awaited")]
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Self { socket: socket.to_owned(), process }
    }

    /// Returns a memory figure of the process from `/proc/PID/status`, such as `VmHWM`, in MiB.
    pub(crate) fn memory(&self, figure: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
        let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024.0
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
