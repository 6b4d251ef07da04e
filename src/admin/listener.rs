//! A listener that serves so many connections at a time and leaves the rest to wait: whoever talks to the API must not use up the
//! descriptors that the relay's clients need.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Accepts from another listener while fewer than its limit are served.
#[derive(Debug)]
pub(super) struct Limited<L> {
    listener: L,
    free: Arc<Semaphore>,
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    _place: OwnedSemaphorePermit,
}

impl<L> Limited<L> {
    pub(super) fn new(listener: L, connections: usize) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(connections)) }
    }
}

impl<L: Listener> Listener for Limited<L> {
    type Io = Counted<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = self.free.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, address) = self.listener.accept().await;
        (Counted { stream, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
