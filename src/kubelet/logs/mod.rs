//! Files of container logs: rotation and removal.

mod directory;
mod policy;

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tonic::Status;
use tracing::debug;

use crate::terminal::sanitize;
use directory::LogDirectory;

pub use policy::LogRotatePolicy;

/// Form of the time in the name of a rotated log, in UTC.
const TIMESTAMP_FORMAT: &str = "%Y%m%d-%H%M%S";

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
pub(super) enum RotateError {
    /// An operation on a file failed.
    #[error("cannot {action}: {source}")]
    File {
        /// The action that failed.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The runtime refused something.
    #[error("{method}: {}", sanitize(status.message()))]
    Runtime {
        /// The call.
        method: &'static str,
        /// The answer.
        status: Status,
    },
    /// The log was moved aside, the runtime refused to open it again, and it could not be moved back.
    #[error("ReopenContainerLog: {}, and the log keeps its rotated name: {source}", sanitize(status.message()))]
    NotRestored {
        /// The answer of the runtime.
        status: Status,
        /// The reason.
        source: io::Error,
    },
}

/// Rotates the log at `path` if it has reached `max_size`, so that at most `max_files` are there. `reopen` makes the runtime open the path
/// again. Tells whether the log was rotated.
pub(super) async fn rotate_if_large<F>(
    path: &Path,
    max_size: u64,
    max_files: usize,
    now: Timestamp,
    reopen: impl Fn() -> F,
) -> Result<bool, RotateError>
where
    F: Future<Output = Result<(), Status>>,
{
    let checked = path.to_owned();
    let open = move || LogDirectory::open(&checked).and_then(|log| Ok((log.size()?, log)));
    let size = match run_blocking("find the log", open.clone()).await {
        // An earlier rotation was interrupted before the runtime had opened the path again.
        Err(RotateError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let reopened = reopen().await;
            reopened.map_err(|status| RotateError::Runtime { method: "ReopenContainerLog", status })?;
            run_blocking("find the log after it was reopened", open).await
        }
        found => found,
    };
    let (size, log) = size?;
    if size < max_size {
        return Ok(false);
    }
    let log = Arc::new(log);
    let (files, suffix) = (log.clone(), now.strftime(TIMESTAMP_FORMAT).to_string());
    run_blocking("remove or compress earlier logs", move || files.make_room(max_files)).await?;
    let (files, aside) = (log.clone(), suffix.clone());
    run_blocking("rename the log", move || files.set_aside(&aside)).await?;
    match reopen().await {
        Ok(()) => Ok(true),
        // The next check tries again.
        Err(status) => match run_blocking("rename the log back", move || log.restore(&suffix)).await {
            Ok(()) => Err(RotateError::Runtime { method: "ReopenContainerLog", status }),
            Err(RotateError::File { source, .. }) => Err(RotateError::NotRestored { status, source }),
            Err(other) => Err(other),
        },
    }
}

/// Removes the log at `path` with everything that was rotated. A log that was never written is none.
pub(super) async fn remove_log(path: PathBuf) {
    let removed = spawn_blocking(move || match LogDirectory::open(&path).and_then(|log| log.remove_all()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            debug!(path = %path.display(), %error, "a container's log was not removed");
        }
        _ => {}
    });
    // A panic was logged, and the log goes with the pod.
    let _ = removed.await;
}

/// Runs a file operation on a thread for blocking work.
async fn run_blocking<T: Send + 'static>(
    action: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, RotateError> {
    let done = spawn_blocking(work).await.unwrap_or_else(|fault| Err(io::Error::other(fault)));
    done.map_err(|source| RotateError::File { action, source })
}

#[cfg(test)]
mod tests;
