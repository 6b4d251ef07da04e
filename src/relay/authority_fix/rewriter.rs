//! The scanner: finds the header blocks in a client's bytes, and passes all other bytes unchanged.

use bytes::{BufMut as _, BytesMut};

use super::headers::{self, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, MAX_FRAME};
use super::hpack::HpackDecoder;
use crate::relay::h2_settings;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header in bytes.
const HEAD: usize = 9;

/// Maximum bytes of the header fields of one request, and of the frames of one header block. h2 has
/// the same limit.
const MAX_LIST: usize = h2_settings::REQUEST_HEADER_LIST as usize;

/// Scans one direction of a connection, from the client's first byte.
///
/// The rewriter holds bytes only while a frame header or a header block is incomplete. Bytes that
/// break the framing pass unchanged, so that h2 answers them as HTTP/2 requires. A block that
/// breaks HPACK is replaced by another invalid block.
#[derive(Debug)]
pub struct HeaderRewriter {
    expects: ParseState,
    /// Received bytes of a frame header, or of the frames of a header block, unchanged.
    held: BytesMut,
    block: Option<Block>,
    decoder: HpackDecoder,
    /// Set once the first authority was found to be invalid. Each header block is rewritten then.
    mends: bool,
}

/// Part of the connection to which the next bytes belong.
#[derive(Clone, Copy, Debug)]
enum ParseState {
    /// The preface, of which this many bytes have been received.
    Preface(usize),
    /// A frame header. Its received bytes begin at `from` in `held`.
    Head { from: usize },
    /// A frame that is neither HEADERS nor CONTINUATION, of which this many bytes are missing.
    Other(usize),
    /// The payload of a HEADERS or CONTINUATION frame, whose header begins at `from` in `held`.
    Payload { from: usize, length: usize },
}

/// A header block that is being collected.
#[derive(Debug)]
struct Block {
    stream: [u8; 4],
    end_stream: bool,
    fragments: BytesMut,
}

/// Result of a step.
enum Step {
    Continue,
    /// More bytes are needed.
    NeedMore,
    /// All bytes from here on pass unchanged.
    Passthrough,
}

impl Default for HeaderRewriter {
    fn default() -> Self {
        Self {
            expects: ParseState::Preface(0),
            held: BytesMut::new(),
            block: None,
            decoder: HpackDecoder::new(MAX_LIST),
            mends: false,
        }
    }
}

impl HeaderRewriter {
    /// Scans the next bytes, and appends the bytes that may pass to `passed`. Returns `false` once
    /// the scan is over: all held bytes are then in `passed`, and later bytes need no scan.
    pub fn scan(&mut self, mut bytes: &[u8], passed: &mut BytesMut) -> bool {
        loop {
            match self.step(&mut bytes, passed) {
                Step::Continue => {}
                Step::NeedMore => return true,
                Step::Passthrough => {
                    self.flush_held(passed);
                    passed.put_slice(bytes);
                    return false;
                }
            }
        }
    }

    /// Appends the held bytes to `passed`, unchanged.
    pub fn flush_held(&mut self, passed: &mut BytesMut) {
        passed.unsplit(self.held.split());
        self.block = None;
    }

    fn step(&mut self, bytes: &mut &[u8], passed: &mut BytesMut) -> Step {
        if bytes.is_empty() {
            return Step::NeedMore;
        }
        match self.expects {
            ParseState::Preface(seen) => {
                let length = bytes.len().min(PREFACE.len() - seen);
                if bytes[..length] != PREFACE[seen..seen + length] {
                    return Step::Passthrough;
                }
                passed.put_slice(take(bytes, length));
                let seen = seen + length;
                self.expects = if seen < PREFACE.len() {
                    ParseState::Preface(seen)
                } else {
                    ParseState::Head { from: 0 }
                };
                Step::Continue
            }
            ParseState::Head { from } => {
                let missing = HEAD - (self.held.len() - from);
                self.held.put_slice(take(bytes, missing.min(bytes.len())));
                if self.held.len() - from < HEAD { Step::NeedMore } else { self.on_frame_head(from, passed) }
            }
            ParseState::Other(length) => {
                let here = length.min(bytes.len());
                passed.put_slice(take(bytes, here));
                self.expects = if here < length {
                    ParseState::Other(length - here)
                } else {
                    ParseState::Head { from: 0 }
                };
                Step::Continue
            }
            ParseState::Payload { from, length } => {
                let missing = from + HEAD + length - self.held.len();
                self.held.put_slice(take(bytes, missing.min(bytes.len())));
                if self.held.len() < from + HEAD + length {
                    return Step::NeedMore;
                }
                self.on_payload(from, passed)
            }
        }
    }

    /// Handles a complete frame header.
    fn on_frame_head(&mut self, from: usize, passed: &mut BytesMut) -> Step {
        let head = &self.held[from..];
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, stream) = (head[3], stream_id(head));
        if self.block.is_none() && kind != HEADERS && kind != CONTINUATION {
            passed.unsplit(self.held.split());
            self.expects = if length == 0 { ParseState::Head { from: 0 } } else { ParseState::Other(length) };
            return Step::Continue;
        }
        // Another frame inside a header block, or a CONTINUATION outside one, is a connection
        // error.
        let is_in_place = match &self.block {
            None => kind == HEADERS && stream != [0; 4],
            Some(block) => kind == CONTINUATION && stream == block.stream,
        };
        if !is_in_place || length > MAX_FRAME {
            return Step::Passthrough;
        }
        if self.held.len() + length > MAX_LIST {
            if self.mends {
                // h2's HPACK state differs from the client's, so this block cannot pass unchanged.
                self.held.clear();
                headers::put_frames(stream, false, &headers::broken(), passed);
            }
            return Step::Passthrough;
        }
        self.expects = ParseState::Payload { from, length };
        // An empty payload is already complete.
        if length == 0 { self.on_payload(from, passed) } else { Step::Continue }
    }

    /// Handles a complete frame of a header block.
    fn on_payload(&mut self, from: usize, passed: &mut BytesMut) -> Step {
        let (head, payload) = self.held[from..].split_at(HEAD);
        let (kind, flags) = (head[3], head[4]);
        let fragment = if kind == HEADERS { headers::fragment(flags, payload) } else { Some(payload) };
        let Some(fragment) = fragment else { return Step::Passthrough };
        let block = self.block.get_or_insert_with(|| Block {
            stream: stream_id(head),
            end_stream: flags & END_STREAM != 0,
            fragments: BytesMut::new(),
        });
        block.fragments.put_slice(fragment);
        if flags & END_HEADERS == 0 {
            self.expects = ParseState::Head { from: self.held.len() };
            return Step::Continue;
        }
        self.expects = ParseState::Head { from: 0 };
        self.on_block(passed)
    }

    /// Handles a complete header block. The first block decides whether header blocks are
    /// rewritten.
    fn on_block(&mut self, passed: &mut BytesMut) -> Step {
        let Some(block) = self.block.take() else { return Step::Passthrough };
        let decoded = self.decoder.decode(&block.fragments);
        if !self.mends {
            match &decoded {
                Ok(fields) if headers::has_invalid_authority(fields) => self.mends = true,
                // The block is valid, or broken in a way that h2 detects as well.
                _ => return Step::Passthrough,
            }
        }
        let mended = decoded.map_or_else(|_| headers::broken(), headers::rewrite_authority);
        self.held.clear();
        headers::put_frames(block.stream, block.end_stream, &mended, passed);
        Step::Continue
    }
}

/// Returns the stream identifier in a frame header, without its reserved first bit.
fn stream_id(head: &[u8]) -> [u8; 4] {
    [head[5] & 0x7f, head[6], head[7], head[8]]
}

/// Removes the first `length` bytes from a slice, and returns them.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

#[cfg(test)]
mod tests;
