//! The processes that are measured: a runtime, and the relays in front of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bare;

/// File name of the runtime's socket.
const RUNTIME: &str = "runtime.sock";

/// Environment variables that name an executable: one to measure instead of the build, and one to
/// measure in addition, such as an older build.
const PROGRAM: &str = "PROBESHIM_PROGRAM";
const BASELINE: &str = "PROBESHIM_BASELINE";

/// A socket to call, and the process that serves it. The process is killed when this is dropped.
pub(crate) struct Target {
    name: &'static str,
    socket: PathBuf,
    process: Child,
}

impl Target {
    /// Starts procrun with `synthetic` containers that answer without a process.
    pub(crate) fn procrun(folder: &Path, synthetic: usize) -> Self {
        let socket = folder.join(RUNTIME);
        let mut command = Command::new(program());
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
        // socat complains about every client that leaves before it has its response.
        command.stderr(Stdio::null());
        Self::start("socat", socket, command)
    }

    pub(crate) fn probeshim(folder: &Path) -> Self {
        Self::probeshim_with(folder, "")
    }

    /// Starts probeshim with a configuration.
    pub(crate) fn probeshim_with(folder: &Path, config: &str) -> Self {
        Self::run("probeshim", &program(), folder, folder, config)
    }

    /// Starts another probeshim with a configuration, beside the others.
    pub(crate) fn probeshim_named(name: &'static str, folder: &Path, config: &str) -> Self {
        let own = folder.join(name.replace(' ', "-"));
        fs::create_dir(&own).unwrap();
        Self::run(name, &program(), folder, &own, config)
    }

    /// Starts `run` of another build, if the environment names one.
    pub(crate) fn baseline(folder: &Path) -> Option<Self> {
        let (program, own) = (env::var_os(BASELINE)?, folder.join("baseline"));
        fs::create_dir(&own).unwrap();
        Some(Self::run("baseline", &program, folder, &own, ""))
    }

    /// Starts `run` of a program, with the runtime of one directory, and all other files in
    /// another.
    fn run(name: &'static str, program: &OsStr, runtime: &Path, folder: &Path, config: &str) -> Self {
        let (socket, file) = (folder.join("probeshim.sock"), folder.join("config.yaml"));
        // A configuration without an address closes it.
        let has_address = config.lines().any(|line| line.starts_with("http:"));
        let address = if has_address { "" } else { "http: off\n" };
        fs::write(&file, format!("{address}{config}")).unwrap();
        let mut command = Command::new(program);
        command
            .args(["run", "--log", "warn", "--admin"])
            .arg(folder.join("admin.sock"))
            .arg("--state-dir")
            .arg(folder.join("state"))
            .arg("--config")
            .arg(&file)
            .arg("--listen")
            .arg(&socket)
            .arg("--upstream")
            .arg(runtime.join(RUNTIME));
        Self::start(name, socket, command)
    }

    /// Starts `play` of a manifest, on the runtime of the same directory.
    pub(crate) fn play(folder: &Path, manifest: &Path) -> Self {
        let socket = folder.join("probeshim.sock");
        let mut command = Command::new(program());
        command.arg("play").arg(manifest).args(["--log", "warn", "--http", "off"]).stdout(Stdio::null());
        for (flag, name) in [
            ("--admin", "admin.sock"),
            ("--state-dir", "state"),
            ("--pod-logs", "logs"),
            ("--upstream", RUNTIME),
        ] {
            command.arg(flag).arg(folder.join(name));
        }
        command.arg("--listen").arg(&socket);
        Self::start("play", socket, command)
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

    /// Returns a value of `/proc/PID/status`, such as `VmHWM`, in KiB.
    pub(crate) fn memory(&self, figure: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Returns the number of calls that probeshim counts as `observed`, `kept` or `dropped`.
    pub(crate) fn calls(&self, counted: &str) -> u64 {
        let mut command = Command::new(program());
        command.args(["status", "-o", "json", "--admin"]).arg(self.socket.with_file_name("admin.sock"));
        let status: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        status["calls"][counted].as_u64().unwrap()
    }

    /// Returns the processor time that the process has used, in seconds.
    pub(crate) fn processor_time(&self) -> f64 {
        let process = procfs::process::Process::new(self.pid().cast_signed()).unwrap();
        let stat = process.stat().unwrap();
        (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Resets the peak of memory (`VmHWM`) to the memory that the process holds now.
    pub(crate) fn reset_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").unwrap();
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().cast_signed()).unwrap(), signal).unwrap();
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// Returns the program that is measured.
fn program() -> OsString {
    env::var_os(PROGRAM).unwrap_or_else(|| env!("CARGO_BIN_EXE_probeshim").into())
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
