//! Replaces the authority of old clients, which send the path of the socket as `:authority`. h2
//! refuses such a request as malformed before the relay sees it.
//!
//! Clients built on grpc-go before 1.64 (kubelet and crictl up to 1.30) and Python's grpcio with a
//! `unix:` target send the path. The adapter inspects the bytes of a connection on their way to h2,
//! up to the first HEADERS frame. If the first authority is valid, the adapter stops inspecting the
//! connection permanently. Otherwise it rewrites the header blocks of that connection.

mod headers;
pub mod hpack;
mod rewriter;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

pub use rewriter::HeaderRewriter;

/// Maximum bytes of one read while the adapter inspects the stream.
const CHUNK: usize = 16 << 10;

/// The reading half of a client's stream, from which h2 reads requests.
#[derive(Debug)]
pub struct AuthorityRewriter<S> {
    stream: S,
    /// `None` once the client's bytes pass unchanged.
    scanner: Option<Box<HeaderRewriter>>,
    /// Bytes that the scanner has let through and h2 has not read yet.
    passed: BytesMut,
    at_end: bool,
}

impl<S> AuthorityRewriter<S> {
    /// Creates the adapter of a stream from which nothing has been read.
    #[must_use]
    pub fn new(stream: S) -> Self {
        Self { stream, scanner: Some(Box::default()), passed: BytesMut::new(), at_end: false }
    }
}

impl<S: AsyncRead + Unpin> AuthorityRewriter<S> {
    /// Reads from the client until the scanner lets bytes through or stops, or the client's stream
    /// ends.
    fn poll_scan(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.passed.is_empty() && !self.at_end {
            let Some(scanner) = &mut self.scanner else { break };
            let mut chunk = [0; CHUNK];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut chunk))?;
            self.at_end = chunk.filled().is_empty();
            let goes_on = if self.at_end {
                // The client's stream ended in the middle of a frame. h2 receives the held bytes
                // unchanged, and judges them.
                scanner.flush_held(&mut self.passed);
                false
            } else {
                scanner.scan(chunk.filled(), &mut self.passed)
            };
            if !goes_on {
                self.scanner = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AuthorityRewriter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.scanner.is_some() {
            ready!(self.poll_scan(cx))?;
        }
        if self.passed.is_empty() {
            return if self.at_end {
                Poll::Ready(Ok(()))
            } else {
                Pin::new(&mut self.stream).poll_read(cx, buf)
            };
        }
        let length = self.passed.len().min(buf.remaining());
        buf.put_slice(&self.passed[..length]);
        self.passed.advance(length);
        if self.passed.is_empty() {
            self.passed = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}
