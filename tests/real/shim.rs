//! The real binary in front of a runtime.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::accounts;
use super::server::Server;

/// `probeshim run`.
#[derive(Debug)]
pub(crate) struct Probeshim {
    server: Option<Server>,
    socket: PathBuf,
    admin: PathBuf,
    config: PathBuf,
    upstream: PathBuf,
    log: PathBuf,
    state: PathBuf,
    /// Flags beside the usual ones.
    more: Vec<String>,
    /// Variables of its environment.
    env: Vec<(String, String)>,
}

impl Probeshim {
    /// Starts it in `folder`, in front of `upstream`.
    pub(crate) fn start(folder: &Path, upstream: &Path) -> Self {
        Self::listening(&folder.join("probeshim.sock"), folder, upstream)
    }

    /// The same, with more flags.
    pub(crate) fn start_with(folder: &Path, upstream: &Path, more: &[&str]) -> Self {
        Self::launched(&folder.join("probeshim.sock"), folder, upstream, more, &[])
    }

    /// The same, with variables in its environment.
    pub(crate) fn start_in(folder: &Path, upstream: &Path, more: &[&str], env: &[(&str, &str)]) -> Self {
        Self::launched(&folder.join("probeshim.sock"), folder, upstream, more, env)
    }

    /// The same, with a socket elsewhere.
    pub(crate) fn listening(socket: &Path, folder: &Path, upstream: &Path) -> Self {
        Self::launched(socket, folder, upstream, &[], &[])
    }

    fn launched(socket: &Path, folder: &Path, upstream: &Path, more: &[&str], env: &[(&str, &str)]) -> Self {
        let mut shim = Self {
            server: None,
            socket: socket.to_owned(),
            admin: folder.join("admin.sock"),
            upstream: upstream.to_owned(),
            log: folder.join("probeshim.log"),
            state: folder.join("state"),
            config: folder.join("config.yaml"),
            more: more.iter().map(ToString::to_string).collect(),
            env: env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        };
        if !shim.config.exists() {
            // Whatever the machine has of its own.
            std::fs::write(&shim.config, "").unwrap();
        }
        shim.launch();
        shim
    }

    fn launch(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command.arg("run").arg("--listen").arg(&self.socket).arg("--upstream").arg(&self.upstream);
        command.arg("--admin").arg(&self.admin).args(["--http", "off", "--log", "debug"]);
        command
            .arg("--state-dir")
            .arg(&self.state)
            .arg("--config")
            .arg(&self.config)
            .args(&self.more)
            .envs(self.env.iter().cloned());
        let server = self.server.insert(Server::start("probeshim", &mut command, &self.log));
        server.wait_until(|_| UnixStream::connect(&self.socket).is_ok());
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The memory that it holds, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        self.figure("VmRSS:")
    }

    /// The most memory that it has held, in KiB.
    pub(crate) fn peak(&self) -> u64 {
        self.figure("VmHWM:")
    }

    fn figure(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The processor time that its threads have taken, by their names, in milliseconds.
    pub(crate) fn processor_time(&self) -> Vec<(String, u64)> {
        let process = procfs::process::Process::new(self.pid().cast_signed()).unwrap();
        let threads = process.tasks().unwrap().flatten();
        let stats = threads.filter_map(|thread| thread.stat().ok());
        stats.map(|stat| (stat.comm, (stat.utime + stat.stime) * 1000 / procfs::ticks_per_second())).collect()
    }

    fn pid(&self) -> u32 {
        self.server.as_ref().unwrap().pid()
    }

    /// What `probeshim calls` or another command prints.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        self.ask_with(arguments, &[])
    }

    /// What it prints as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ask(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    /// The same, for those that print a list.
    pub(crate) fn list(&self, arguments: &[&str]) -> Vec<Value> {
        self.json(arguments).as_array().unwrap().clone()
    }

    /// What it prints, with arguments that stand behind all flags.
    pub(crate) fn ask_with(&self, arguments: &[&str], last: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        let output = command.args(arguments).arg("--admin").arg(&self.admin).args(last).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Its metrics, as the admin socket serves them.
    pub(crate) fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(&self.admin).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Everything that it has recorded on disk.
    pub(crate) fn recorded(&self) -> String {
        let segments = std::fs::read_dir(self.state.join("calls")).into_iter().flatten().flatten();
        segments.map(|segment| std::fs::read_to_string(segment.path()).unwrap()).collect()
    }

    /// The calls that it has seen, all of which it has kept: the first is still there. (A status would ask the runtime for its version,
    /// which counts that.)
    pub(crate) fn calls(&self) -> Vec<Value> {
        let calls: Vec<Value> = serde_json::from_str(&self.ask(&["calls", "-o", "json"])).unwrap();
        assert!(calls.is_empty() || calls.iter().any(|call| call["id"] == 1), "the oldest are gone");
        calls
    }

    /// The calls that it has made itself, but for streams, which go on: a method and a code each.
    pub(crate) fn own_calls(&self) -> Vec<Value> {
        let metrics = self.metrics();
        let own = accounts::series(&metrics, "probeshim_internal_calls_total");
        let calls = own.flat_map(|labels| {
            let call = json!({"method": labels.get("method"), "code": labels.get("code")});
            std::iter::repeat_n(call, usize::try_from(labels.value).unwrap())
        });
        calls.filter(|call| call["method"] != "GetContainerEvents" && call["method"] != "other").collect()
    }

    /// The calls that the runtime should have counted since probeshim started, but for those that went another way.
    pub(crate) fn counted(&self) -> Vec<Value> {
        self.calls().into_iter().chain(self.own_calls()).collect()
    }

    /// Asks it to end, and returns its log.
    pub(crate) fn stop(mut self) -> String {
        self.terminate();
        self.log()
    }

    /// Ends it as a service manager would, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.terminate();
        self.launch();
    }

    /// Kills it, as a crash would, and starts it again.
    pub(crate) fn crash_and_restart(&mut self) {
        self.server.take().unwrap().crash();
        self.launch();
    }

    fn terminate(&mut self) {
        let status = self.server.take().unwrap().terminate();
        assert!(status.success(), "{status}: {}", self.log());
        assert!(!self.socket.exists(), "the socket was left behind");
    }
}
