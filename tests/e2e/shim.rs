//! The real binary in front of a runtime.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::containerd::pause;

/// `probeshim run`.
#[derive(Debug)]
pub(crate) struct Probeshim {
    process: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Probeshim {
    /// Starts it in `folder`, in front of `upstream`.
    pub(crate) fn start(folder: &Path, upstream: &Path) -> Self {
        let (socket, log) = (folder.join("probeshim.sock"), folder.join("probeshim.log"));
        let process = Command::new(env!("CARGO_BIN_EXE_probeshim"))
            .arg("run")
            .arg("--listen")
            .arg(&socket)
            .arg("--upstream")
            .arg(upstream)
            .arg("--admin")
            .arg(folder.join("admin.sock"))
            .args(["--http", "127.0.0.1:0", "--log", "debug"])
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut shim = Self { process, socket, log };
        for _ in 0..600 {
            if UnixStream::connect(&shim.socket).is_ok() {
                return shim;
            }
            let ended = shim.process.try_wait().unwrap();
            assert!(ended.is_none(), "probeshim ended: {}", shim.log());
            pause();
        }
        panic!("probeshim does not come up: {}", shim.log());
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end, and returns its log.
    pub(crate) fn stop(mut self) -> String {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
        assert!(!self.socket.exists(), "the socket was left behind");
        self.log()
    }
}

impl Drop for Probeshim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("probeshim's log:\n{}", self.log());
        }
    }
}
