//! Rotation and removal of container logs (kubelet: `logs/container_log_manager.go`).

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

/// Format of the time in the name of a rotated log, in UTC.
const TIMESTAMP_FORMAT: &str = "%Y%m%d-%H%M%S";

/// Reason why a log was not rotated.
#[derive(Debug, thiserror::Error)]
pub(super) enum RotateError {
    /// An operation on a file failed.
    #[error("cannot {action}: {source}")]
    File {
        /// Action that failed.
        action: &'static str,
        /// Cause of the failure.
        source: io::Error,
    },
    /// A call to the runtime failed.
    #[error("{method}: {}", sanitize(status.message()))]
    Runtime {
        /// Name of the CRI method.
        method: &'static str,
        /// Status of the call.
        status: Status,
    },
    /// The log was renamed, the runtime failed to reopen it, and it could not be renamed back.
    #[error("ReopenContainerLog: {}, and the log keeps its rotated name: {source}", sanitize(status.message()))]
    NotRestored {
        /// Status of the call.
        status: Status,
        /// Cause of the failure.
        source: io::Error,
    },
}

/// Rotates the log at `path` if it has at least `max_size` bytes, so that at most `max_files` files
/// exist. `reopen` makes the runtime open the path again. Returns whether the log was rotated.
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
        // An earlier rotation was interrupted before the runtime had reopened the log.
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
        // The next check repeats the rotation.
        Err(status) => match run_blocking("rename the log back", move || log.restore(&suffix)).await {
            Ok(()) => Err(RotateError::Runtime { method: "ReopenContainerLog", status }),
            Err(RotateError::File { source, .. }) => Err(RotateError::NotRestored { status, source }),
            Err(other) => Err(other),
        },
    }
}

/// Removes the log at `path` and all rotated ones. A missing log is no error.
pub(super) async fn remove_log(path: PathBuf) {
    let removed = spawn_blocking(move || match LogDirectory::open(&path).and_then(|log| log.remove_all()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            debug!(path = %path.display(), %error, "removal of a container log failed");
        }
        _ => {}
    });
    // A panic has been logged. The log is removed with its pod.
    let _ = removed.await;
}

/// Runs a file operation on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    action: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, RotateError> {
    let done = spawn_blocking(work).await.unwrap_or_else(|fault| Err(io::Error::other(fault)));
    done.map_err(|source| RotateError::File { action, source })
}

#[cfg(test)]
mod tests;
