//! Filter for the heads of an HTTP/1 response: drops interim heads, and limits the size of all
//! heads together.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes of all heads of a response together, as in Go's `http.Transport`.
pub(super) const MAX_HEADER_BYTES: usize = 10 << 20;

/// Number of bytes per read before the final head is complete, as in Go.
const READ_BYTES: usize = 4 << 10;

/// Number of bytes of a status line that determine whether its head is interim: `HTTP/1.1 100` and
/// the byte after the code.
const STATUS_BYTES: usize = 13;

/// Error: the heads of a response are too large.
#[derive(Debug, thiserror::Error)]
#[error("net/http: server response headers exceeded {MAX_HEADER_BYTES} bytes; aborted")]
pub(super) struct HeadersExceeded;

impl HeadersExceeded {
    /// Returns whether an I/O error is this error.
    pub(super) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.downcast_ref::<Self>().is_some())
    }
}

/// A connection that omits the interim heads of a response.
///
/// hyper would parse each interim head, with room for as many headers as it allows, and does not
/// limit the number of interim heads.
pub(super) struct FinalHead<S> {
    stream: S,
    heads: Heads,
    /// Number of bytes read before the final head was complete.
    read: usize,
    /// Bytes that have been read and not yet been returned.
    pending: BytesMut,
}

/// Parser that separates the heads of a response.
#[derive(Debug, Default)]
pub(super) struct Heads {
    pub(super) stage: HeadStage,
    /// Beginning of a status line that is not complete enough to classify.
    status: Vec<u8>,
    line: HeadLine,
}

/// Part of a response that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HeadStage {
    /// The beginning of a status line.
    #[default]
    Status,
    /// The rest of an interim head, which is dropped.
    Interim,
    /// The rest of the final head.
    Final,
    /// Everything after the final head.
    Body,
}

/// State of the line that is being read. An empty line ends a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeadLine {
    #[default]
    Empty,
    CarriageReturn,
    Text,
}

impl<S> FinalHead<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, heads: Heads::default(), read: 0, pending: BytesMut::new() }
    }
}

impl Heads {
    /// Parses bytes, and appends those that are not dropped to `passed`.
    pub(super) fn read(&mut self, mut bytes: &[u8], passed: &mut BytesMut) {
        while !bytes.is_empty() {
            let limit = match self.stage {
                HeadStage::Body => return passed.extend_from_slice(bytes),
                HeadStage::Status => bytes.len().min(STATUS_BYTES - self.status.len()),
                HeadStage::Interim | HeadStage::Final => bytes.len(),
            };
            let end = bytes[..limit].iter().position(|byte| *byte == b'\n').map_or(limit, |at| at + 1);
            let part;
            (part, bytes) = bytes.split_at(end);
            if self.stage == HeadStage::Status {
                self.status.extend_from_slice(part);
                if part.ends_with(b"\n") || self.status.len() == STATUS_BYTES {
                    self.judge(passed);
                }
                continue;
            }
            if self.stage == HeadStage::Final {
                passed.extend_from_slice(part);
            }
            self.read_line(part);
        }
    }

    /// Classifies a head by the beginning of its status line. Bytes that are no status line are not
    /// dropped, so that hyper rejects them.
    fn judge(&mut self, passed: &mut BytesMut) {
        self.stage = match self.status.as_slice() {
            // hyper skips empty lines before the status line.
            b"\n" | b"\r\n" => HeadStage::Status,
            status if is_interim(status) => HeadStage::Interim,
            _ => HeadStage::Final,
        };
        if self.stage != HeadStage::Interim {
            passed.extend_from_slice(&self.status);
        }
        self.line = if self.status.ends_with(b"\n") { HeadLine::Empty } else { HeadLine::Text };
        self.status.clear();
    }

    /// Parses a line of a head, or a part of one.
    fn read_line(&mut self, part: &[u8]) {
        let text = part.strip_suffix(b"\n");
        match (self.line, text.unwrap_or(part)) {
            (_, b"") => {}
            (HeadLine::Empty, b"\r") => self.line = HeadLine::CarriageReturn,
            _ => self.line = HeadLine::Text,
        }
        if text.is_none() {
            return;
        }
        if self.line != HeadLine::Text {
            self.stage = if self.stage == HeadStage::Interim { HeadStage::Status } else { HeadStage::Body };
        }
        self.line = HeadLine::Empty;
    }
}

/// Returns whether the beginning of a status line belongs to an interim head. 101 is final, because
/// another protocol follows it.
fn is_interim(status: &[u8]) -> bool {
    let Some((version, rest)) = status.split_at_checked("HTTP/1.1 ".len()) else { return false };
    let [code @ .., b' ' | b'\r' | b'\n'] = rest else { return false };
    matches!(version, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9', b' '])
        && matches!(code, [b'1', b'0'..=b'9', b'0'..=b'9'])
        && code != b"101"
}

impl<S: AsyncRead + Unpin> AsyncRead for FinalHead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.pending.is_empty() {
            if this.heads.stage == HeadStage::Body {
                return Pin::new(&mut this.stream).poll_read(cx, buf);
            }
            let left = MAX_HEADER_BYTES - this.read;
            if left == 0 {
                return Poll::Ready(Err(io::Error::other(HeadersExceeded)));
            }
            let mut bytes = [0; READ_BYTES];
            let mut part = ReadBuf::new(&mut bytes[..left.min(READ_BYTES)]);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
            let bytes = part.filled();
            if bytes.is_empty() {
                let is_truncated = this.read > 0;
                return Poll::Ready(if is_truncated {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(())
                });
            }
            this.read += bytes.len();
            this.heads.read(bytes, &mut this.pending);
        }
        let count = this.pending.len().min(buf.remaining());
        buf.put_slice(&this.pending[..count]);
        this.pending.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FinalHead<S> {
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn passed_on(answer: &[u8]) -> io::Result<Vec<u8>> {
        let mut passed = Vec::new();
        FinalHead::new(answer).read_to_end(&mut passed).await.map(|_| passed)
    }

    #[tokio::test]
    async fn only_interim_heads_are_dropped() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\n\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\n\n"),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nbody", "HTTP/1.1 200 OK\r\n\r\nbody"),
            ("HTTP/1.1 103\r\nA: b\r\n\r\nHTTP/1.0 102\nA: b\n\nHTTP/1.1 204 N\n\n", "HTTP/1.1 204 N\n\n"),
            ("HTTP/1.1 101 Switch\r\n\r\nanything", "HTTP/1.1 101 Switch\r\n\r\nanything"),
            ("\r\n\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "\r\n\nHTTP/1.1 200 OK\r\n\r\n"),
            ("HTTP/1.1 1000 C\r\n\r\nb", "HTTP/1.1 1000 C\r\n\r\nb"),
            ("nonsense\n\n", "nonsense\n\n"),
            ("HTTP/2.0 100 C\r\n\r\nHTTP/1.1 200", "HTTP/2.0 100 C\r\n\r\nHTTP/1.1 200"),
            ("", ""),
        ] {
            let passed = passed_on(answer.as_bytes()).await.unwrap();
            assert_eq!(String::from_utf8(passed).unwrap(), expected, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_within_a_response_head_is_an_error() {
        for answer in ["HTTP/1.1 100 C\r\n\r\n", "HTTP/1.1 100 C\r\n\r\nHTTP/1", "HTTP/1.1 200 OK\r\nA: b"] {
            let error = passed_on(answer.as_bytes()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn the_header_limit_applies_to_all_heads_together_and_not_to_the_body() {
        let interim = b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n";
        let begin = b"HTTP/1.1 200 OK\r\nA: ";
        let mut answer: Vec<u8> = interim.repeat(MAX_HEADER_BYTES / 2 / interim.len());
        answer.extend_from_slice(begin);
        answer.resize(MAX_HEADER_BYTES - 4, b'x');
        let mut too_large = answer.clone();
        answer.extend_from_slice(b"\r\n\r\n");
        assert_eq!(answer.len(), MAX_HEADER_BYTES);
        let whole = answer.len() - interim.repeat(MAX_HEADER_BYTES / 2 / interim.len()).len();
        answer.extend_from_slice(&vec![b'y'; 100_000]);
        assert_eq!(passed_on(&answer).await.unwrap().len(), whole + 100_000);
        too_large.extend_from_slice(b"x\r\n\r\nbody");
        let error = passed_on(&too_large).await.unwrap_err();
        let text = "net/http: server response headers exceeded 10485760 bytes; aborted";
        assert_eq!(error.to_string(), text);
    }

    proptest! {
        #[test]
        fn response_heads_are_parsed_equally_from_any_chunks(
            parts in vec(
                prop::sample::select(vec!["HTTP/1.1 ", "100", "200", " OK", "\r", "\n", "\r\n", "A: b", "x"]),
                0..40,
            ),
            cuts in vec(1_usize..20, 1..10),
        ) {
            let answer = parts.concat();
            let (mut whole, mut at_once) = (BytesMut::new(), Heads::default());
            at_once.read(answer.as_bytes(), &mut whole);
            let (mut parts, mut in_parts) = (BytesMut::new(), Heads::default());
            let (mut rest, mut sizes) = (answer.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                in_parts.read(part, &mut parts);
                rest = after;
            }
            prop_assert_eq!(whole, parts);
            prop_assert_eq!(at_once.stage, in_parts.stage);
        }
    }
}
