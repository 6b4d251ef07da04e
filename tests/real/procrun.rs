//! A procrun of our own, as people start it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::accounts::{self, Accounts};
use super::life::{self, Expected, Runtime};
use super::server::Server;

/// `probeshim runtime`.
#[derive(Debug)]
pub(crate) struct Procrun {
    _server: Server,
    folder: TempDir,
}

impl Procrun {
    /// Starts it in a folder of its own.
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("probeshim-e2e.").tempdir_in("/tmp").unwrap();
        let socket = folder.path().join("procrun.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
        command.arg("runtime").arg("--listen").arg(&socket).arg("--root").arg(folder.path().join("root"));
        let mut server = Server::start("procrun", &mut command, &folder.path().join("procrun.log"));
        server.wait_until(|_| UnixStream::connect(&socket).is_ok());
        Self { _server: server, folder }
    }
}

impl Runtime for Procrun {
    const EXPECTED: Expected = life::PROCRUN;

    fn socket(&self) -> PathBuf {
        self.folder.path().join("procrun.sock")
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn accounts(&self) -> Option<Accounts> {
        None
    }

    fn accounts_of(calls: &[Value]) -> Accounts {
        accounts::by_code(calls)
    }
}
