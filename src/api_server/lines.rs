//! The lines of a response body, as they arrive.

use bytes::{Buf as _, Bytes, BytesMut};

use super::ApiServerError;
use crate::https::StreamedBody;

/// Maximum length of a line. The API server limits objects to less than this.
const MAX_LINE_BYTES: usize = 8 << 20;

/// Splits a body into lines.
#[derive(Debug)]
pub(crate) struct Lines {
    body: StreamedBody,
    buffer: LineBuffer,
}

/// Bytes that were received, and are not yet a complete line.
#[derive(Debug, Default)]
struct LineBuffer {
    bytes: BytesMut,
    /// Number of bytes without a line break at the beginning.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: StreamedBody) -> Self {
        Self { body, buffer: LineBuffer::default() }
    }

    /// Returns the next line without its end; `None` at the end of the body. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiServerError> {
        loop {
            if let Some(line) = self.buffer.line() {
                return Ok(Some(line));
            }
            if self.buffer.bytes.len() > MAX_LINE_BYTES {
                return Err(ApiServerError::LineTooLong(MAX_LINE_BYTES));
            }
            match self.body.next().await? {
                Some(data) => self.buffer.bytes.extend_from_slice(&data),
                // An incomplete last line is not an event.
                None => return Ok(None),
            }
        }
    }
}

impl LineBuffer {
    fn line(&mut self) -> Option<Bytes> {
        let Some(end) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let line = self.bytes.split_to(self.searched + end).freeze();
        self.bytes.advance(1);
        self.searched = 0;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_the_body_is_divided() {
        let text = b"{\"a\": 1}\n\n{\"b\": 2}\nincomplete";
        for size in 1..=text.len() {
            let mut buffer = LineBuffer::default();
            let mut lines = Vec::new();
            for piece in text.chunks(size) {
                buffer.bytes.extend_from_slice(piece);
                lines.extend(std::iter::from_fn(|| buffer.line()));
            }
            assert_eq!(lines, [&b"{\"a\": 1}"[..], b"", b"{\"b\": 2}"], "in pieces of {size} bytes");
        }
    }
}
