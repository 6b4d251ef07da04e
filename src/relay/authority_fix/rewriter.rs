//! The scanner: finds the header blocks in a client's bytes and lets everything else through as it came.

use bytes::{BufMut as _, BytesMut};

use super::headers::{self, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, MAX_FRAME};
use super::hpack::HpackDecoder;
use crate::relay::h2_settings;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of a frame's header.
const HEAD: usize = 9;

/// What the header fields of one request, and the frames of one block, may be together in bytes: what h2 is told too.
const MAX_LIST: usize = h2_settings::REQUEST_HEADER_LIST as usize;

/// Reads one direction of a connection, from the client's first byte on.
///
/// It holds bytes only while it has a part of a frame header or of a header block in hand. Whatever breaks the framing is
/// let through as it came, for h2 to answer as HTTP/2 says; a block that breaks HPACK is replaced by another broken one.
#[derive(Debug)]
pub struct HeaderRewriter {
    expects: ParseState,
    /// The part of a frame header, or the whole frames of a header block, as they came.
    held: BytesMut,
    block: Option<Block>,
    decoder: HpackDecoder,
    /// Set once the first authority was found to need mending.
    mends: bool,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
enum ParseState {
    /// So many bytes of the preface have been seen.
    Preface(usize),
    /// A frame header; what has come of it begins at `from` in `held`.
    Head { from: usize },
    /// So many bytes of a frame that does not concern us.
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

/// What to do after a step.
enum Step {
    Continue,
    /// Wait for more bytes.
    NeedMore,
    /// Let everything through from here on.
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
    /// Scans the next bytes; what may go on is put behind `passed`. False when there is nothing left to scan for: then all
    /// that was held has been passed, and what follows goes through as it comes.
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

    /// Lets go of what is held, as it came.
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

    /// A frame header is complete: is it one of ours?
    fn on_frame_head(&mut self, from: usize, passed: &mut BytesMut) -> Step {
        let head = &self.held[from..];
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, stream) = (head[3], stream_id(head));
        if self.block.is_none() && kind != HEADERS && kind != CONTINUATION {
            passed.unsplit(self.held.split());
            self.expects = if length == 0 { ParseState::Head { from: 0 } } else { ParseState::Other(length) };
            return Step::Continue;
        }
        // Any other frame inside a header block, or a continuation of nothing, breaks the connection.
        let is_in_place = match &self.block {
            None => kind == HEADERS && stream != [0; 4],
            Some(block) => kind == CONTINUATION && stream == block.stream,
        };
        if !is_in_place || length > MAX_FRAME {
            return Step::Passthrough;
        }
        if self.held.len() + length > MAX_LIST {
            if self.mends {
                // h2's HPACK state is not the client's any more, so this block cannot be passed on as it came.
                self.held.clear();
                headers::put_frames(stream, false, &headers::broken(), passed);
            }
            return Step::Passthrough;
        }
        self.expects = ParseState::Payload { from, length };
        // An empty payload is complete already.
        if length == 0 { self.on_payload(from, passed) } else { Step::Continue }
    }

    /// A frame of a header block is complete.
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

    /// A header block is complete: it is mended, or the first one shows that none needs to be.
    fn on_block(&mut self, passed: &mut BytesMut) -> Step {
        let Some(block) = self.block.take() else { return Step::Passthrough };
        let decoded = self.decoder.decode(&block.fragments);
        if !self.mends {
            match &decoded {
                Ok(fields) if headers::has_invalid_authority(fields) => self.mends = true,
                // Valid, or broken in a way that h2 will see just as well.
                _ => return Step::Passthrough,
            }
        }
        let mended = decoded.map_or_else(|_| headers::broken(), headers::rewrite_authority);
        self.held.clear();
        headers::put_frames(block.stream, block.end_stream, &mended, passed);
        Step::Continue
    }
}

/// The stream that a frame header names; its first bit is reserved and means nothing.
fn stream_id(head: &[u8]) -> [u8; 4] {
    [head[5] & 0x7f, head[6], head[7], head[8]]
}

/// Takes the first bytes of a slice off it.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

#[cfg(test)]
mod tests;
