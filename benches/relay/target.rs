//! What is measured: a runtime, and the relays in front of it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::bare;

/// Where the runtime listens.
const RUNTIME: &str = "runtime.sock";

/// A socket to call, and the process behind it, which ends when this is dropped.
pub(crate) struct Target {
    name: &'static str,
    socket: PathBuf,
    process: Child,
}

impl Target {
    /// procrun, with so many containers that answer without a process.
    pub(crate) fn procrun(folder: &Path, synthetic: usize) -> Self {
        let socket = folder.join(RUNTIME);
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command.args(["runtime", "--log", "warn", "--synthetic", &synthetic.to_string()]);
        command.arg("--listen").arg(&socket).arg("--root").arg(folder.join("root")).stdout(Stdio::null());
        Self::start("direct", socket, command)
    }

    pub(crate) fn socat(folder: &Path) -> Self {
        let (socket, runtime) = (folder.join("socat.sock"), folder.join(RUNTIME));
        let mut command = Command::new("socat");
        command
            .arg(format!("UNIX-LISTEN:{},fork", socket.display()))
            .arg(format!("UNIX-CONNECT:{}", runtime.display()));
        // It complains of every client that goes before it has its answer.
        command.stderr(Stdio::null());
        Self::start("socat", socket, command)
    }

    pub(crate) fn probeshim(folder: &Path) -> Self {
        Self::probeshim_with(folder, "")
    }

    /// The same, with a configuration.
    pub(crate) fn probeshim_with(folder: &Path, config: &str) -> Self {
        let (socket, file) = (folder.join("probeshim.sock"), folder.join("config.yaml"));
        fs::write(&file, config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command
            .args(["run", "--log", "warn", "--http", "off", "--admin"])
            .arg(folder.join("admin.sock"))
            .arg("--state")
            .arg(folder.join("state"))
            .arg("--config")
            .arg(&file)
            .arg("--listen")
            .arg(&socket)
            .arg("--upstream")
            .arg(folder.join(RUNTIME));
        Self::start("probeshim", socket, command)
    }

    pub(crate) fn bare(folder: &Path) -> Self {
        let socket = folder.join("bare.sock");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(bare::ARGUMENT).arg(&socket).arg(folder.join(RUNTIME));
        Self::start("bare relay", socket, command)
    }

    fn start(name: &'static str, socket: PathBuf, mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started ({error}); is it installed?"));
        while UnixStream::connect(&socket).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "{name} ended");
            #[expect(clippy::disallowed_methods, reason = "another process is awaited")]
            std::thread::sleep(Duration::from_micros(200));
        }
        Self { name, socket, process }
    }

    pub(crate) fn name(&self) -> &str {
        self.name
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// A figure of the kernel's on the process, such as `VmHWM`, in KiB.
    pub(crate) fn memory(&self, figure: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// How many calls probeshim counts as `observed`, `kept` or `dropped`.
    pub(crate) fn calls(&self, counted: &str) -> u64 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command.args(["status", "-o", "json", "--admin"]).arg(self.socket.with_file_name("admin.sock"));
        let status: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        status["calls"][counted].as_u64().unwrap()
    }

    /// The processor time that it has taken, in seconds.
    pub(crate) fn processor_time(&self) -> f64 {
        let process = procfs::process::Process::new(self.pid().cast_signed()).unwrap();
        let stat = process.stat().unwrap();
        (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
