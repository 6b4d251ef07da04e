//! The program as users start it, in a temporary directory.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use fixtures::http2::client::Client;
use fixtures::http2::is_served;
use fixtures::http2::runtime::{Connection, Runtime};
use fixtures::wait::soon;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory to run probeshim in.
pub(crate) struct Place(TempDir);

/// A running probeshim, which is killed when dropped.
pub(crate) struct Running {
    pub(crate) process: Child,
    pub(crate) socket: PathBuf,
    pub(crate) log: PathBuf,
}

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Runs a command to its end while other tasks continue.
    pub(crate) async fn to(mut command: Command) -> Self {
        let output = soon(tokio::task::spawn_blocking(move || command.output())).await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Parses the JSON output of a successful command.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        // Processes without root need access to this directory.
        fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
        // An empty configuration replaces the machine's own configuration file.
        place.configure("");
        place
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the configuration of all programs that are started later.
    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.at("config.yaml"), text).unwrap();
    }

    /// Returns `probeshim run` with this listen path, the upstream and `more` arguments.
    pub(crate) fn command(&self, listen: &str, more: &[&str]) -> Command {
        let mut command = self.command_with_http(listen, "127.0.0.1:0");
        command.args(more);
        command
    }

    /// Returns `probeshim run` with an address for metrics and health.
    pub(crate) fn command_with_http(&self, listen: &str, http: &str) -> Command {
        let mut command = self.command_of(Path::new(env!("CARGO_BIN_EXE_probeshim")), listen);
        command.args(["--http", http]);
        command
    }

    /// Returns `probeshim run` as an unprivileged user.
    pub(crate) fn command_of_nobody(&self, listen: &str) -> Command {
        let mut command = self.command_of(&self.copied_program(), listen);
        command.args(["--http", "127.0.0.1:0"]).uid(65_534).gid(65_534);
        command
    }

    /// Copies the program to a path where other users can execute it, because the original may be
    /// below a directory of root. A child process makes the copy. Otherwise a process that is
    /// forked at the same time would inherit the writable descriptor, and the copy could not be
    /// executed (ETXTBSY).
    pub(crate) fn copied_program(&self) -> PathBuf {
        let program = self.at("probeshim");
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_probeshim")).arg(&program).status().unwrap();
        assert!(copied.success());
        program
    }

    pub(crate) fn command_of(&self, program: &Path, listen: &str) -> Command {
        let mut command = self.watching_command_of(program, listen);
        // Most runtimes here are played by the test, which answers only the calls that it expects.
        command.args(["--watch-runtime", "off"]);
        command
    }

    /// Returns `probeshim run` that also watches the runtime for pods and containers.
    pub(crate) fn watching_command_of(&self, program: &Path, listen: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("run").arg("--listen").arg(self.at(listen));
        command.arg("--upstream").arg(self.at("runtime.sock"));
        command.arg("--admin").arg(self.at("admin.sock"));
        command.arg("--state-dir").arg(self.at("state")).arg("--config").arg(self.at("config.yaml"));
        command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
        command
    }

    /// Returns a runtime whose socket belongs to another user and group.
    pub(crate) fn runtime_of_a_stranger(&self, mode: u32) -> Runtime {
        let socket = self.at("runtime.sock");
        let runtime = Runtime::listen(&socket);
        std::os::unix::fs::chown(&socket, Some(1234), Some(2345)).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
        runtime
    }

    /// Runs a program that must refuse to start, and returns its exit code and output.
    pub(crate) async fn refused(&self, mut command: Command) -> (i32, String) {
        let log = self.at("refused.log");
        let process = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        let mut running = Running { process, socket: PathBuf::new(), log };
        let code = running.ended().await.unwrap();
        (code, fs::read_to_string(&running.log).unwrap())
    }

    /// Returns `probeshim` with these arguments and the admin socket of this directory.
    pub(crate) fn asking(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command.args(arguments).arg("--admin").arg(self.at("admin.sock")).env_remove("NO_COLOR");
        command
    }

    /// Runs `probeshim` with these arguments to its end.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> Answer {
        Answer::to(self.asking(arguments)).await
    }

    pub(crate) async fn start(&self, more: &[&str]) -> Running {
        self.spawn(&mut self.command("shim.sock", more)).await
    }

    /// Starts probeshim so that it also watches the runtime for pods and containers.
    pub(crate) async fn start_watching(&self, more: &[&str]) -> Running {
        let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
        let mut command = self.watching_command_of(program, "shim.sock");
        command.args(["--http", "off"]).args(more);
        self.spawn(&mut command).await
    }

    /// Starts probeshim with a runtime, and accepts the connection of the check at its start.
    pub(crate) async fn start_with_runtime(&self, more: &[&str]) -> (Running, Runtime) {
        let runtime = Runtime::listen(&self.at("runtime.sock"));
        let shim = self.start(more).await;
        drop(runtime.accept_raw().await);
        (shim, runtime)
    }

    pub(crate) async fn spawn(&self, command: &mut Command) -> Running {
        self.spawn_logging_to(command, "log").await
    }

    /// Starts a command with its own log, next to another program in this directory.
    pub(crate) async fn spawn_logging_to(&self, command: &mut Command, log: &str) -> Running {
        let (socket, log) = (self.at("shim.sock"), self.at(log));
        let process = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        let running = Running { process, socket, log };
        running.logged("probeshim started").await;
        running
    }
}

impl Running {
    /// Returns the lines of the log, which are JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let log = fs::read_to_string(&self.log).unwrap();
        // The last line may be incomplete.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for a line with this message.
    pub(crate) async fn logged(&self, message: &str) -> Value {
        let appeared = async {
            loop {
                if let Some(line) = self.lines().into_iter().find(|line| line["message"] == message) {
                    return line;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(appeared).await
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Stops the process until SIGCONT.
    pub(crate) async fn stop(&self) {
        self.signal(Signal::STOP);
        let stopped = async {
            // After the signal is sent, each thread stops separately.
            while !self.threads().all(|state| state.contains("State:\tT")) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(stopped).await;
    }

    /// Returns the kernel's status of each thread.
    pub(crate) fn threads(&self) -> impl Iterator<Item = String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default())
    }

    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let end = async {
            loop {
                if let Some(status) = self.process.try_wait().unwrap() {
                    return status.code();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(end).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a client and the runtime's end of its connection.
pub(crate) async fn joined(shim: &Running, runtime: &Runtime) -> (Client, Connection) {
    let stream = tokio::net::UnixStream::connect(&shim.socket).await.unwrap();
    tokio::join!(Client::over(stream), runtime.accept())
}

/// Checks that the relay serves a call.
pub(crate) async fn serves(shim: &Running, runtime: &Runtime) {
    let (mut client, mut connection) = joined(shim, runtime).await;
    is_served(&mut client, &mut connection).await;
}

/// Returns an error without root, which is needed to change the user and the owner of files.
pub(crate) fn is_root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err("needs root".to_owned()) }
}
