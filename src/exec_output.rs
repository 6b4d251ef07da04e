//! Output of a command, read with the rules and the limits of containerd's ExecSync.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::unix::pipe;
use tokio::task::{JoinError, yield_now};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::gofmt::format_duration;

/// Maximum number of bytes that are kept of each stream. The rest is read and dropped.
const MAX_STREAM_BYTES: usize = 16 << 20;

/// Maximum size of a response: containerd's default limit for messages that it sends. A response
/// with a stream of [`MAX_STREAM_BYTES`] exceeds it.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Size of the buffer for reads of a stream.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Reads the output of a command while the command runs.
#[derive(Debug)]
pub(crate) struct OutputReader {
    read_task: AbortOnDropHandle<(Vec<u8>, Vec<u8>)>,
}

/// Reason for which the output of a command is incomplete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainError {
    /// Other processes held the streams for longer than the limit.
    #[error("in {} because io is still held by other processes", format_duration(*.0))]
    Held(Duration),
    /// The task that reads has ended.
    #[error("{0}")]
    Task(JoinError),
}

impl DrainError {
    /// Returns the message of containerd for an exec with this id.
    pub(crate) fn message(&self, id: &str) -> String {
        let failure = format!("failed to drain exec process {id:?} io");
        match self {
            Self::Held(_) => format!("{failure}: {failure} {self}"),
            Self::Task(_) => format!("{failure}: {self}"),
        }
    }
}

/// Returns the message of containerd for a command that was killed after its timeout.
pub(crate) fn timeout_message(timeout: Duration) -> String {
    format!("timeout {} exceeded: context deadline exceeded", format_duration(timeout))
}

/// Returns the timeout of an ExecSync; `None` if a command has no timeout.
pub(crate) fn exec_timeout(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

impl OutputReader {
    /// Starts to read both streams.
    pub(crate) fn new(stdout: pipe::Receiver, stderr: pipe::Receiver) -> Self {
        let read_task = tokio::spawn(async move { tokio::join!(read_stream(stdout), read_stream(stderr)) });
        Self { read_task: AbortOnDropHandle::new(read_task) }
    }

    /// Waits for the end of both streams, which is reached when no process holds them any more.
    /// Fails if `limit` elapses first.
    pub(crate) async fn drain(self, limit: Option<Duration>) -> Result<(Vec<u8>, Vec<u8>), DrainError> {
        let read = match limit {
            None => self.read_task.await,
            Some(limit) => timeout(limit, self.read_task).await.map_err(|_| DrainError::Held(limit))?,
        };
        read.map_err(DrainError::Task)
    }
}

/// Returns the message of the error with which containerd refuses to send a response of this
/// length; `None` if it sends the response.
pub(crate) fn refused_length(length: usize) -> Option<String> {
    (length > MAX_RESPONSE_BYTES)
        .then(|| format!("grpc: trying to send message larger than max ({length} vs. {MAX_RESPONSE_BYTES})"))
}

/// Reads a stream to its end and returns the first [`MAX_STREAM_BYTES`] bytes. Other tasks run
/// after each chunk: the stream of a command that writes without pause is always readable.
async fn read_stream(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut output, mut buffer) = (Vec::new(), Vec::with_capacity(READ_BUFFER_BYTES));
    while let Ok(length @ 1..) = stream.read_buf(&mut buffer).await {
        let room = MAX_STREAM_BYTES - output.len();
        output.extend_from_slice(&buffer[..length.min(room)]);
        buffer.clear();
        yield_now().await;
    }
    output
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_between_the_chunks_of_a_stream_that_is_always_readable() {
        const CHUNKS: usize = 100;
        let iterations = Arc::new(AtomicUsize::new(0));
        let counter = iterations.clone();
        let other = tokio::spawn(async move {
            loop {
                counter.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        let all = vec![b'x'; CHUNKS * READ_BUFFER_BYTES];
        assert_eq!(read_stream(all.as_slice()).await.len(), all.len());
        let iterations = iterations.load(Ordering::Relaxed);
        assert!(iterations > CHUNKS / 2, "{iterations} turns of another task beside {CHUNKS} chunks");
        other.abort();
    }
}
