//! The writing half of a stream, and the bytes that wait to be written to it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use tokio::io::AsyncWrite;
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

use super::h2_settings::MAX_UNWRITTEN_BYTES;
use super::turn::Turn;

/// Number of bytes of one permit. Each part of a message takes one more permit, for its frame.
const PERMIT_BYTES: usize = 1 << 10;

/// Writes to a stream in turns, and records whether the socket is blocked.
#[derive(Debug)]
pub(super) struct TrackedWriter<S> {
    stream: S,
    backlog: Backlog,
    turn: Turn,
    /// Whether writes to a peer that has closed its end are dropped instead of failing.
    drops_after_close: bool,
}

/// Bytes that have been handed to a connection and are not yet written to its socket.
///
/// h2 does not report when queued data has been written, but it writes until the socket is blocked.
/// After a poll with an unblocked socket, all data that the peer's windows allow has been written.
/// A peer that shrinks its windows meanwhile gets its data late. Heads of calls beyond the peer's
/// limit of streams are counted separately ([`HeldHead`]).
#[derive(Clone, Debug)]
pub(super) struct Backlog(Arc<BacklogState>);

#[derive(Debug)]
struct BacklogState {
    /// Whether the last write was pending.
    blocked: AtomicBool,
    /// Number of bytes handed to the connection since its start.
    handed_on: AtomicU64,
    /// Number of bytes that the socket has taken since its start.
    written: AtomicU64,
    /// Permits for parts of messages.
    room: Arc<Semaphore>,
    /// Number of permits that have been taken.
    taken: AtomicUsize,
    /// Number of bytes of heads and trailers, which are never kept back.
    head_bytes: AtomicUsize,
    /// Number of bytes of heads that wait until the peer accepts another stream.
    held_head_bytes: AtomicUsize,
    /// Whether reads from the other side of the relay are paused.
    source_paused: AtomicBool,
    /// Whether the connection is closed. No task waits for it then.
    closed: AtomicBool,
}

/// The head of a call that waits until the peer accepts another stream. It counts until it is
/// dropped.
#[derive(Debug)]
pub(super) struct HeldHead {
    backlog: Backlog,
    bytes: usize,
}

/// Waits for room in a backlog.
#[derive(Debug)]
pub(super) struct Room {
    backlog: Backlog,
    waiting: Option<PollSemaphore>,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Self(Arc::new(BacklogState {
            blocked: AtomicBool::new(false),
            handed_on: AtomicU64::new(0),
            written: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(MAX_UNWRITTEN_BYTES / PERMIT_BYTES)),
            taken: AtomicUsize::new(0),
            head_bytes: AtomicUsize::new(0),
            held_head_bytes: AtomicUsize::new(0),
            source_paused: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }))
    }

    /// Returns whether the socket takes no more bytes at the moment.
    pub(super) fn is_blocked(&self) -> bool {
        self.0.blocked.load(Ordering::Relaxed)
    }

    /// Returns whether the maximum number of bytes waits to be written.
    pub(super) fn is_full(&self) -> bool {
        (self.0.room.available_permits() == 0 && !self.is_closed()) || self.is_full_of_heads()
    }

    /// Returns whether the maximum number of bytes of heads waits to be written.
    pub(super) fn is_full_of_heads(&self) -> bool {
        let waiting = self.0.head_bytes.load(Ordering::Relaxed);
        let held = self.0.held_head_bytes.load(Ordering::Relaxed);
        waiting + held >= MAX_UNWRITTEN_BYTES && !self.is_closed()
    }

    /// Marks the connection as closed, so that no task waits for room on it.
    pub(super) fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.0.blocked.store(false, Ordering::Relaxed);
        self.polled();
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Relaxed)
    }

    /// Sets whether reads from the other side of the relay are paused. The caller wakes the
    /// connection's task when the pause is over.
    pub(super) fn pause_source(&self, paused: bool) {
        self.0.source_paused.store(paused, Ordering::Relaxed);
    }

    /// Returns whether reads from the other side of the relay are paused.
    pub(super) fn is_source_paused(&self) -> bool {
        self.0.source_paused.load(Ordering::Relaxed) && !self.is_closed()
    }

    /// Adds a head or trailers.
    pub(super) fn add_head(&self, headers: &HeaderMap) {
        let bytes = bytes_of(headers);
        self.0.head_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.0.handed_on.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of bytes handed to the connection since its start.
    pub(super) fn handed_on(&self) -> u64 {
        self.0.handed_on.load(Ordering::Relaxed)
    }

    /// Adds a head that waits until the peer accepts another stream.
    pub(super) fn hold_head(&self, headers: &HeaderMap) -> HeldHead {
        let bytes = bytes_of(headers);
        self.0.held_head_bytes.fetch_add(bytes, Ordering::Relaxed);
        HeldHead { backlog: self.clone(), bytes }
    }

    /// Records that the connection has been polled. Its data has been written, unless the socket is
    /// blocked.
    pub(super) fn polled(&self) {
        if !self.is_blocked() {
            self.0.head_bytes.store(0, Ordering::Relaxed);
            match self.0.taken.swap(0, Ordering::Relaxed) {
                0 => {}
                taken => self.0.room.add_permits(taken),
            }
        }
    }

    /// Returns a handle that waits for room for the data of one stream.
    pub(super) fn room(&self) -> Room {
        Room { backlog: self.clone(), waiting: None }
    }

    /// Returns the number of bytes that the socket has taken since its start.
    pub(super) fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.0.blocked.store(written.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.0.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        written
    }
}

/// Returns the size of a head as HTTP/2 counts it (RFC 9113, section 6.5.2).
fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

fn is_closed_by_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl Drop for HeldHead {
    fn drop(&mut self) {
        self.backlog.0.held_head_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Room {
    /// Returns the backlog in which room is taken.
    pub(super) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// Takes room for `bytes` bytes, which is free again once they are written.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        let Backlog(state) = &self.backlog;
        let permits = (1 + bytes / PERMIT_BYTES).min(MAX_UNWRITTEN_BYTES / PERMIT_BYTES);
        let count = u32::try_from(permits).unwrap_or(u32::MAX);
        if self.waiting.is_none()
            && let Ok(permit) = state.room.try_acquire_many(count)
        {
            permit.forget();
        } else {
            let waiting = self.waiting.get_or_insert_with(|| PollSemaphore::new(state.room.clone()));
            // The semaphore is never closed.
            if let Some(permit) = ready!(waiting.poll_acquire_many(cx, count)) {
                permit.forget();
            }
            self.waiting = None;
        }
        state.taken.fetch_add(permits, Ordering::Relaxed);
        state.handed_on.fetch_add(bytes as u64, Ordering::Relaxed);
        Poll::Ready(())
    }
}

impl<S> TrackedWriter<S> {
    /// Creates the writing half of a client's stream.
    pub(super) fn to_client(stream: S, turn: Turn, backlog: Backlog) -> Self {
        Self { stream, backlog, turn, drops_after_close: false }
    }

    /// Creates the writing half of an upstream connection. A runtime that has closed its end may
    /// have sent responses that are not read yet, and a failed write would make h2 drop them.
    /// Writes are therefore dropped instead. The end of the reading half ends the connection.
    pub(super) fn to_upstream(stream: S, turn: Turn, backlog: Backlog) -> Self {
        Self { stream, backlog, turn, drops_after_close: true }
    }

    /// Records and returns the result of a write of `bytes` bytes.
    fn written(&self, result: Poll<io::Result<usize>>, bytes: usize) -> Poll<io::Result<usize>> {
        let result = match result {
            Poll::Ready(Err(error)) if self.drops_after_close && is_closed_by_peer(&error) => {
                Poll::Ready(Ok(bytes))
            }
            result => result,
        };
        self.backlog.note(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedWriter<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = if self.turn.is_exhausted(cx) {
            Poll::Pending
        } else {
            Pin::new(&mut self.stream).poll_write(cx, buf)
        };
        self.written(written, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = if self.turn.is_exhausted(cx) {
            Poll::Pending
        } else {
            Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
        };
        self.written(written, bufs.iter().map(|buf| buf.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
