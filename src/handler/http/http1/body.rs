//! Reads the body of a response from a connection.

use std::io;

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncRead;

use super::connection::{BUFFER_BYTES, Connection, ReadError};
use super::head::{Framing, is_blank};

/// Maximum number of bytes of a chunk's header, with its line end.
const MAX_CHUNK_LINE: usize = BUFFER_BYTES;

/// Number of bytes per chunk that are no data and are accepted, besides twice the data.
const FREE_CHUNK_BYTES: i64 = 16;

/// Maximum number of bytes of all chunks that are no data and are not accepted as such.
const MAX_EXCESS_BYTES: i64 = 16 << 10;

/// Maximum number of hexadecimal digits of the size of a chunk.
const MAX_SIZE_DIGITS: usize = 16;

const UNEXPECTED_EOF: &str = "unexpected EOF";

/// Reason for which a body could not be read.
#[derive(Debug)]
pub(in crate::handler::http) enum BodyError {
    /// The connection failed.
    Io(io::Error),
    /// The body is invalid or incomplete. The text is Go's.
    Invalid(String),
}

/// A body that is being read.
pub(in crate::handler::http) struct Http1Body<S> {
    connection: Connection<S>,
    state: BodyState,
}

/// State of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    /// This number of bytes. The body ends with them.
    Rest(u64),
    /// Everything up to the end of the connection.
    UntilClose,
    /// The header of a chunk, after this number of bytes that are no data.
    ChunkHeader { excess: i64 },
    /// This number of bytes of a chunk, and its line end.
    Chunk { left: u64, excess: i64 },
    /// Nothing.
    End,
}

impl<S: AsyncRead + Unpin> Http1Body<S> {
    pub(super) fn new(connection: Connection<S>, framing: Framing) -> Self {
        let state = match framing {
            Framing::Empty => BodyState::End,
            Framing::Length(length) => BodyState::Rest(length),
            Framing::Chunked => BodyState::ChunkHeader { excess: 0 },
            Framing::UntilClose => BodyState::UntilClose,
        };
        Self { connection, state }
    }

    /// Returns the next part of the body; `None` at its end.
    pub(in crate::handler::http) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.state {
                BodyState::End => return Ok(None),
                BodyState::UntilClose => {
                    if self.is_at_end().await? {
                        self.state = BodyState::End;
                        return Ok(None);
                    }
                    return Ok(Some(self.take(u64::MAX)));
                }
                BodyState::Rest(left) => {
                    if self.is_at_end().await? {
                        return Err(BodyError::invalid(UNEXPECTED_EOF));
                    }
                    let part = self.take(left);
                    let left = left - part.len() as u64;
                    self.state = if left == 0 { BodyState::End } else { BodyState::Rest(left) };
                    return Ok(Some(part));
                }
                BodyState::Chunk { left: 0, excess } => {
                    self.read_chunk_end().await?;
                    self.state = BodyState::ChunkHeader { excess };
                }
                BodyState::Chunk { left, excess } => {
                    if self.is_at_end().await? {
                        return Err(BodyError::invalid(UNEXPECTED_EOF));
                    }
                    let part = self.take(left);
                    self.state = BodyState::Chunk { left: left - part.len() as u64, excess };
                    return Ok(Some(part));
                }
                BodyState::ChunkHeader { excess } => {
                    let line = self.chunk_line().await?;
                    let size = chunk_size(&line).map_err(BodyError::invalid)?;
                    let excess = excess_after(excess, line.len(), size);
                    if excess > MAX_EXCESS_BYTES && size != 0 {
                        return Err(BodyError::invalid("chunked encoding contains too much non-data"));
                    }
                    self.state = if size == 0 {
                        self.read_trailer().await?;
                        BodyState::End
                    } else {
                        BodyState::Chunk { left: size, excess }
                    };
                }
            }
        }
    }

    /// Returns whether there are no more bytes.
    async fn is_at_end(&mut self) -> Result<bool, BodyError> {
        let is_empty = self.connection.buffered().is_empty();
        Ok(is_empty && self.connection.fill().await.map_err(BodyError::Io)? == 0)
    }

    /// Returns at most `most` of the bytes that have been read.
    fn take(&mut self, most: u64) -> Bytes {
        let buffered = self.connection.buffered();
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(buffered.len());
        buffered.split_to(count).freeze()
    }

    /// Reads the line end after the data of a chunk.
    async fn read_chunk_end(&mut self) -> Result<(), BodyError> {
        if !self.buffer(2).await? {
            return Err(BodyError::invalid(UNEXPECTED_EOF));
        }
        let buffered = self.connection.buffered();
        if !buffered.starts_with(b"\r\n") {
            return Err(BodyError::invalid("malformed chunked encoding"));
        }
        buffered.advance(2);
        Ok(())
    }

    /// Returns the header of a chunk without its line end (`readChunkLine`).
    async fn chunk_line(&mut self) -> Result<Bytes, BodyError> {
        let too_long = || BodyError::invalid("header line too long");
        let mut searched = 0;
        let end = loop {
            let buffered = self.connection.buffered();
            let seen = &buffered[searched..buffered.len().min(MAX_CHUNK_LINE)];
            if let Some(at) = seen.iter().position(|byte| *byte == b'\n') {
                break searched + at;
            }
            searched += seen.len();
            if searched == MAX_CHUNK_LINE {
                return Err(too_long());
            }
            if self.connection.fill().await.map_err(BodyError::Io)? == 0 {
                return Err(BodyError::invalid(UNEXPECTED_EOF));
            }
        };
        let line = self.connection.buffered().split_to(end + 1).freeze();
        match line.iter().position(|byte| *byte == b'\r') {
            None => Err(BodyError::invalid("chunked line ends with bare LF")),
            Some(at) if at + 2 != line.len() => Err(BodyError::invalid("invalid CR in chunked line")),
            Some(at) => Ok(line.slice(..at)),
        }
    }

    /// Reads the headers after the last chunk (`body.readTrailer`).
    async fn read_trailer(&mut self) -> Result<(), BodyError> {
        const END: &str = "http: unexpected EOF reading trailer";
        if !self.buffer(2).await? {
            return Err(BodyError::invalid(END));
        }
        if self.connection.buffered().starts_with(b"\r\n") {
            self.connection.buffered().advance(2);
            return Ok(());
        }
        loop {
            let buffered = self.connection.buffered();
            let seen = &buffered[..buffered.len().min(BUFFER_BYTES)];
            if seen.windows(4).any(|four| four == b"\r\n\r\n") {
                break;
            }
            let is_full = buffered.len() >= BUFFER_BYTES;
            if is_full || self.connection.fill().await.map_err(BodyError::Io)? == 0 {
                return Err(BodyError::invalid("http: suspiciously long trailer after chunked body"));
            }
        }
        match self.connection.read_headers().await {
            Ok(_) => Ok(()),
            Err(ReadError::Broken(reason)) if reason == UNEXPECTED_EOF => Err(BodyError::invalid(END)),
            Err(ReadError::Broken(reason)) => Err(BodyError::Invalid(reason)),
            Err(ReadError::Eof) => Err(BodyError::invalid(END)),
            Err(ReadError::Io(error) | ReadError::BrokenIo(error)) => Err(BodyError::Io(error)),
        }
    }

    /// Reads until this number of bytes is buffered. Returns `false` if there are fewer.
    async fn buffer(&mut self, count: usize) -> Result<bool, BodyError> {
        while self.connection.buffered().len() < count {
            if self.connection.fill().await.map_err(BodyError::Io)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl BodyError {
    fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}

/// Returns the number of bytes that are too many for the data so far, after the header of a chunk.
/// Sizes overflow as in Go (`beginChunk`).
fn excess_after(excess: i64, header: usize, size: u64) -> i64 {
    let header = i64::try_from(header).unwrap_or(i64::MAX).saturating_add(2);
    let free = FREE_CHUNK_BYTES.wrapping_add(size.cast_signed().wrapping_mul(2));
    excess.saturating_add(header).wrapping_sub(free).max(0)
}

/// Returns the size in the header of a chunk (`beginChunk`, `parseHexUint`).
fn chunk_size(line: &[u8]) -> Result<u64, &'static str> {
    let blanks = line.iter().rev().take_while(|byte| is_blank(**byte)).count();
    let line = &line[..line.len() - blanks];
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    if digits.is_empty() {
        return Err("empty hex number for chunk length");
    }
    let mut size = 0;
    for (place, byte) in digits.iter().enumerate() {
        let digit = char::from(*byte).to_digit(16).ok_or("invalid byte in chunk length")?;
        if place == MAX_SIZE_DIGITS {
            return Err("http chunk length too large");
        }
        size = size << 4 | u64::from(digit);
    }
    Ok(size)
}
