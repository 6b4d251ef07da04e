//! Hands the socket that systemd passed to a successor: the program that an upgrade has put in
//! place. This process serves new calls until the successor does, and then finishes those in
//! flight.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::admin::Client;
use crate::admin::api::Status;
use crate::regular_file::path_of_deleted;

/// Variable with the pid of the process whose socket was taken over.
const PREDECESSOR: &str = "PROBESHIM_PREDECESSOR";

/// Time that a program has to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a shell has to start the successor.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a successor has to catch signals.
const SIGNALS_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a successor has to serve calls, as systemd gives it to a service.
const SERVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which a killed successor is waited for.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between checks of the progress of a successor.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Starts the successor: the arguments are its program and that program's arguments, and standard
/// input is the socket. Prints its pid.
///
/// The outer shell ends, so that systemd becomes the parent of the successor and learns of its end.
/// The inner shell has the pid that the successor will have.
const START: &str = r#"exec 3<&0 </dev/null
LISTEN_FDS=1 sh -c 'LISTEN_PID=$$ exec "$0" "$@"' "$0" "$@" >&2 &
echo $!"#;

/// SIGUSR2 in a set of signals.
const USR2_BIT: u64 = 1 << (Signal::USR2.as_raw() - 1);

/// Reason why no successor can be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandoverError {
    /// The program cannot be run.
    #[error("{program} cannot be run: {source}")]
    Run {
        /// Path of the program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program does not print its version.
    #[error("{program} --version ended with {status}")]
    Version {
        /// Path of the program.
        program: PathBuf,
        /// The exit status.
        status: ExitStatus,
    },
    /// The program did not end in time.
    #[error("{0} --version did not end within {VERSION_TIMEOUT:?}")]
    TimedOut(PathBuf),
    /// The shell printed no pid.
    #[error("the shell that starts the successor failed: {0}")]
    Shell(String),
    /// The successor has ended before it served.
    #[error("the successor with pid {0} ended during its start; its last messages have the reason")]
    Ended(u32),
    /// The successor did not serve in time.
    #[error("the successor with pid {0} did not serve within {SERVE_TIMEOUT:?}, and was killed")]
    Hung(u32),
}

/// The program that takes over.
#[derive(Debug)]
pub(super) struct Successor {
    program: PathBuf,
}

impl Successor {
    /// Finds the program at the path from which this process was started, and checks that it runs.
    /// A check that is dropped is killed.
    pub(super) async fn find() -> Result<Self, HandoverError> {
        let program = program_path(env::args_os().next(), env::current_exe().unwrap_or_default());
        let mut version = Command::new(&program);
        version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = timeout(VERSION_TIMEOUT, version.kill_on_drop(true).status()).await;
        let status = status.map_err(|_| HandoverError::TimedOut(program.clone()))?;
        let status = status.map_err(|source| HandoverError::Run { program: program.clone(), source })?;
        if status.success() { Ok(Self { program }) } else { Err(HandoverError::Version { program, status }) }
    }

    /// Starts the program with the arguments of this process and the socket. Returns its pid.
    pub(super) async fn start(self, socket: OwnedFd) -> Result<u32, HandoverError> {
        let mut command = Command::new("sh");
        command.args(["-c", START]).arg(&self.program).args(env::args_os().skip(1)).stdin(socket);
        command.env(PREDECESSOR, std::process::id().to_string());
        // It names this process. The successor answers the watchdog in its place.
        command.env_remove("WATCHDOG_PID");
        // Standard error stays the log, also for the successor.
        let child = command.stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| HandoverError::Shell(error.to_string()))?;
        let output = timeout(START_TIMEOUT, child.wait_with_output()).await;
        let output = output
            .map_err(|_| HandoverError::Shell(format!("it did not end within {START_TIMEOUT:?}")))?
            .map_err(|error| HandoverError::Shell(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let pid = text.trim().parse();
        pid.map_err(|_| HandoverError::Shell(format!("it printed {text:?}, not a pid")))
    }
}

/// Waits until a successor answers on the admin socket: it serves calls from then on. Fails if the
/// successor ends. Kills a successor that takes longer than the timeout: without an end it would
/// prevent each further upgrade, and its sockets would stay in use.
pub(super) async fn serves(pid: u32, admin: &Client) -> Result<(), HandoverError> {
    if let Ok(served) = timeout(SERVE_TIMEOUT, answers(pid, admin)).await {
        return served;
    }
    kill(pid).await;
    Err(HandoverError::Hung(pid))
}

/// Waits until the process that answers on the admin socket has a pid. Fails if that process ends.
async fn answers(pid: u32, admin: &Client) -> Result<(), HandoverError> {
    loop {
        let status = admin.status().await.ok();
        let status = status.and_then(|status| serde_json::from_slice::<Status>(&status).ok());
        if status.is_some_and(|status| status.pid == pid) {
            return Ok(());
        }
        if process_status(pid).is_none() {
            return Err(HandoverError::Ended(pid));
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Kills a process, and waits for its end. A process that waits for a disk ends only with the disk.
async fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let ended = async {
        while process_status(pid).is_some() {
            sleep(CHECK_INTERVAL).await;
        }
    };
    let _ = timeout(KILL_TIMEOUT, ended).await;
}

/// Waits until a successor catches SIGUSR2. By default the signal ends a process, so systemd may
/// send it for the next upgrade only then. A successor that takes longer than the timeout is
/// accepted. Fails if the successor ends.
pub(super) async fn catches_signals(pid: u32) -> Result<(), HandoverError> {
    let caught = async {
        loop {
            match process_status(pid) {
                Some(status) if status.sigcgt & USR2_BIT != 0 => return Ok(()),
                Some(_) => sleep(CHECK_INTERVAL).await,
                None => return Err(HandoverError::Ended(pid)),
            }
        }
    };
    timeout(SIGNALS_TIMEOUT, caught).await.unwrap_or(Ok(()))
}

/// Returns the status of a process; `None` if it has ended, also if it is a zombie.
fn process_status(pid: u32) -> Option<procfs::process::Status> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    process.status().ok().filter(|status| !status.state.starts_with('Z'))
}

/// Returns whether the process whose socket was taken over still runs; false if there is none.
pub(super) fn predecessor_runs() -> bool {
    let pid = env::var(PREDECESSOR).ok().and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
}

/// Returns the path from which a process was started: its first argument, if that is absolute, as
/// in a unit of systemd. The link in `/proc` follows symbolic links and renamed files, and so names
/// the old program after an upgrade that changes these.
fn program_path(argument: Option<OsString>, link: PathBuf) -> PathBuf {
    if let Some(path) = argument.map(PathBuf::from).filter(|path| path.is_absolute()) {
        return path;
    }
    path_of_deleted(&link).unwrap_or(link)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::socket::SocketPath;

    #[tokio::test(start_paused = true)]
    async fn a_successor_that_hangs_during_its_start_is_killed() {
        let mut hanging = Command::new("sleep").arg("infinity").spawn().unwrap();
        let pid = hanging.id().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let admin = Client::new(SocketPath::new(&dir.path().join("admin.sock")).unwrap());
        let error = serves(pid, &admin).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the successor with pid {pid} did not serve within 60s, and was killed")
        );
        assert_eq!(hanging.wait().await.unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn an_upgraded_program_is_found_at_the_path_of_the_old_one() {
        for (argument, link, path) in [
            ("probeshim", "/usr/local/bin/probeshim (deleted)", "/usr/local/bin/probeshim"),
            ("probeshim", "/usr/local/bin/probeshim", "/usr/local/bin/probeshim"),
            ("/usr/bin/probeshim", "/opt/probeshim-1/probeshim", "/usr/bin/probeshim"),
            ("/usr/bin/probeshim", "/usr/bin/probeshim.old", "/usr/bin/probeshim"),
        ] {
            assert_eq!(program_path(Some(argument.into()), PathBuf::from(link)), Path::new(path));
        }
    }
}
