//! The writing half of a stream, which knows whether bytes still wait to be written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// Passes everything on, and notes when the other end takes no more.
#[derive(Debug)]
pub(super) struct Outlet<S> {
    stream: S,
    blocked: Blocked,
}

/// Whether the last write had to wait. h2 does not tell when what was queued has been written, but it writes until the
/// socket takes no more: after it has been polled, a socket that is not blocked has taken everything that the client's
/// windows allow, and we queue no more than that. (A client that makes its windows smaller meanwhile is out of luck.)
#[derive(Clone, Debug, Default)]
pub(super) struct Blocked(Arc<AtomicBool>);

impl Blocked {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        self.0.store(written.is_pending(), Ordering::Relaxed);
        written
    }
}

impl<S> Outlet<S> {
    pub(super) fn new(stream: S) -> (Self, Blocked) {
        let blocked = Blocked::default();
        (Self { stream, blocked: blocked.clone() }, blocked)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Outlet<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.blocked.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.blocked.note(written)
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
