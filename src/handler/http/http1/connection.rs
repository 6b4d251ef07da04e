//! A connection from which the lines of a response are read.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::MAX_HEADER_BYTES;
use super::head::{KnownHeaders, StatusLine, is_blank, quoted, without_blanks};

/// Number of bytes per read, and size of Go's buffer.
pub(super) const BUFFER_BYTES: usize = 4 << 10;

/// Maximum number of bytes of a first header line that begins with a blank.
const MAX_INITIAL_LINE: usize = 80;

/// Reason for which a response could not be read.
#[derive(Debug)]
pub(in crate::handler::http) enum ReadError {
    /// The connection ended before the first byte.
    Eof,
    /// The connection failed before the first byte.
    Io(io::Error),
    /// The connection failed within the head.
    BrokenIo(io::Error),
    /// The head is invalid, incomplete or too large. The text is Go's.
    Broken(String),
}

/// A connection from which a response is read.
pub(super) struct Connection<S> {
    stream: S,
    buffer: BytesMut,
    /// Number of bytes that may still be read.
    limit: usize,
    at_end: bool,
}

impl<S: AsyncRead + Unpin> Connection<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), limit: MAX_HEADER_BYTES, at_end: false }
    }

    /// Returns whether the heads have reached their limit.
    pub(super) fn is_over_limit(&self) -> bool {
        self.limit == 0
    }

    /// Ends the limit, because the heads have been read.
    pub(super) fn end_limit(&mut self) {
        self.limit = usize::MAX;
    }

    /// Reads a head.
    pub(super) async fn read_head(&mut self) -> Result<(StatusLine, KnownHeaders), ReadError> {
        let line = self.expect_line().await?;
        let status = StatusLine::parse(&line).map_err(ReadError::Broken)?;
        let headers = self.read_headers().await?;
        Ok((status, headers))
    }

    /// Reads header lines up to an empty line (`readMIMEHeader`).
    pub(super) async fn read_headers(&mut self) -> Result<KnownHeaders, ReadError> {
        let mut headers = KnownHeaders::default();
        if self.peek().await?.is_some_and(is_blank) {
            let line = self.expect_line().await?;
            return Err(ReadError::Broken(if line.len() > MAX_INITIAL_LINE {
                "message too large".to_owned()
            } else {
                format!("malformed MIME header initial line: {}", quoted(&line))
            }));
        }
        loop {
            let line = self.expect_line().await?;
            if line.is_empty() {
                return Ok(headers);
            }
            if !line.contains(&b':') {
                return Err(ReadError::Broken(format!(
                    "malformed MIME header: missing colon: {}",
                    quoted(&line)
                )));
            }
            headers.add_line(&self.with_continuations(line).await?).map_err(ReadError::Broken)?;
        }
    }

    /// Returns a line with the lines that continue it, each of which begins with a blank.
    async fn with_continuations(&mut self, line: Bytes) -> Result<Bytes, ReadError> {
        if !self.peek().await?.is_some_and(is_blank) {
            return Ok(line.slice_ref(without_blanks(&line)));
        }
        let mut whole = BytesMut::from(without_blanks(&line));
        while self.peek().await?.is_some_and(is_blank) {
            whole.extend_from_slice(b" ");
            let Some(more) = self.line().await? else { break };
            whole.extend_from_slice(without_blanks(&more));
        }
        Ok(whole.freeze())
    }

    /// Returns the next line; an error at the end of the connection.
    async fn expect_line(&mut self) -> Result<Bytes, ReadError> {
        self.line().await?.ok_or_else(|| ReadError::Broken("unexpected EOF".to_owned()))
    }

    /// Returns the next line without its end; `None` at the end of the connection. The last line
    /// needs no end.
    async fn line(&mut self) -> Result<Option<Bytes>, ReadError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(searched + at + 1);
                line.truncate(line.len() - 1);
                if line.ends_with(b"\r") {
                    line.truncate(line.len() - 1);
                }
                return Ok(Some(line.freeze()));
            }
            searched = self.buffer.len();
            if self.fill().await.map_err(ReadError::BrokenIo)? == 0 {
                let rest = self.buffer.split();
                return Ok((!rest.is_empty()).then(|| rest.freeze()));
            }
        }
    }

    /// Returns the next byte without consuming it; `None` at the end of the connection.
    async fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        if self.buffer.is_empty() {
            self.fill().await.map_err(ReadError::BrokenIo)?;
        }
        Ok(self.buffer.first().copied())
    }

    /// Reads more bytes into the buffer. Returns their number: 0 at the end of the connection.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        if self.at_end {
            return Ok(0);
        }
        if self.limit == 0 {
            return Err(io::Error::other("the limit of the head is reached"));
        }
        let mut bytes = [0; BUFFER_BYTES];
        let wanted = self.limit.min(BUFFER_BYTES);
        let count = self.stream.read(&mut bytes[..wanted]).await?;
        self.at_end = count == 0;
        self.limit -= count;
        self.buffer.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Returns the bytes that have been read and not consumed.
    pub(super) fn buffered(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }
}
