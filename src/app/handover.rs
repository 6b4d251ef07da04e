//! Hands the socket that systemd passed to a successor: the program that an upgrade has put in
//! place. It serves new calls while this process finishes those in flight.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// Variable with the pid of the process whose socket was taken over.
const PREDECESSOR: &str = "PROBESHIM_PREDECESSOR";

/// Time that a program has to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a shell has to start the successor.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the successor: the arguments are its program and that program's arguments, and standard
/// input is the socket. Prints its pid.
///
/// The outer shell ends, so that systemd becomes the parent of the successor and learns of its end.
/// The inner shell has the pid that the successor will have.
const START: &str = r#"exec 3<&0 </dev/null
LISTEN_FDS=1 sh -c 'LISTEN_PID=$$ exec "$0" "$@"' "$0" "$@" >&2 &
echo $!"#;

/// End of the link to the program of a process after the file was replaced.
const DELETED: &[u8] = b" (deleted)";

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
}

/// The program that takes over.
#[derive(Debug)]
pub(super) struct Successor {
    program: PathBuf,
}

impl Successor {
    /// Finds the program at the path from which this process was started, and checks that it runs.
    pub(super) async fn find() -> Result<Self, HandoverError> {
        let program = program_path(env::current_exe().unwrap_or_default());
        let version =
            Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = timeout(VERSION_TIMEOUT, version).await;
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
        text.trim().parse().map_err(|_| HandoverError::Shell(format!("it printed {text:?}, not a pid")))
    }
}

/// Returns whether the process whose socket was taken over still runs; false if there is none.
pub(super) fn predecessor_runs() -> bool {
    let pid = env::var(PREDECESSOR).ok().and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
}

/// Returns the path from which a process was started.
fn program_path(link: PathBuf) -> PathBuf {
    let bytes = link.as_os_str().as_bytes();
    match bytes.strip_suffix(DELETED) {
        Some(path) => PathBuf::from(OsString::from_vec(path.to_vec())),
        None => link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_program_is_found_at_the_path_of_the_old_one() {
        for (link, path) in [
            ("/usr/local/bin/probeshim (deleted)", "/usr/local/bin/probeshim"),
            ("/usr/local/bin/probeshim", "/usr/local/bin/probeshim"),
        ] {
            assert_eq!(program_path(PathBuf::from(link)), Path::new(path));
        }
    }
}
