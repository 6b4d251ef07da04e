//! procrun in the same process as the relay that uses it.

use std::io;
use std::path::PathBuf;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::procrun::{Procrun, ProcrunConfig};
use crate::socket::{BindError, BindMode, SocketPath, bind};

/// Reason why the embedded runtime does not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedRuntimeError {
    /// The socket of procrun cannot be opened.
    #[error(transparent)]
    Claim(#[from] BindError),
    /// An operation of the operating system failed.
    #[error("cannot start procrun: {0}")]
    System(#[from] io::Error),
}

/// A running procrun.
#[derive(Debug)]
pub(super) struct EmbeddedRuntime {
    stop: CancellationToken,
    task: JoinHandle<io::Result<()>>,
}

impl EmbeddedRuntime {
    /// Starts procrun on a socket. Its files are below `root`.
    pub(super) fn start(root: PathBuf, socket: &SocketPath) -> Result<Self, EmbeddedRuntimeError> {
        // The caller prints that nothing is isolated.
        let procrun = Procrun::new(ProcrunConfig { warn_of_ignored: false, ..ProcrunConfig::new(root) })?;
        let (listening, stop) = (bind(socket, BindMode::OwnerOnly)?, CancellationToken::new());
        let until = stop.clone();
        let task = tokio::spawn(async move {
            let served = procrun.serve(listening.listener, until).await;
            drop(listening.claim);
            served
        });
        Ok(Self { stop, task })
    }

    /// Stops all containers and waits for their end.
    pub(super) async fn end(self) -> io::Result<()> {
        self.stop.cancel();
        self.task.await.map_err(io::Error::other)?
    }
}
