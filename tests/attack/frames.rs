//! Frames that an attacker writes.

use fixtures::http2::wire::{self, END_HEADERS, END_STREAM, HEADERS, frame, word};

pub(crate) const PING: u8 = 6;
pub(crate) const PRIORITY_FRAME: u8 = 2;
/// A frame type that HTTP/2 does not define.
pub(crate) const UNKNOWN: u8 = 0xbb;

/// Size of the value that [`bomb`] repeats. Name and value fill a decoder's table of 4,096 bytes.
const BOMB_VALUE_BYTES: usize = 4_000;

/// Generator of a client's stream ids.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streams(u32);

impl Streams {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 += 1;
        2 * self.0 - 1
    }

    /// Returns the number of ids that have been generated.
    pub(crate) fn count(self) -> u64 {
        u64::from(self.0)
    }
}

/// Returns the header block of a request, which adds nothing to the decoder's table.
pub(crate) fn block(path: &str) -> Vec<u8> {
    let mut block = b"\x83\x86\x01\x09localhost\x04".to_vec();
    block.push(u8::try_from(path.len()).unwrap());
    block.extend(path.as_bytes());
    block
}

/// Returns the head of a call without its message.
pub(crate) fn open(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(path))
}

/// Returns a complete call with an empty message.
pub(crate) fn call(stream: u32, path: &str) -> Vec<u8> {
    [open(stream, path), frame(wire::DATA, END_STREAM, stream, &[0; 5])].concat()
}

/// Returns a `RST_STREAM` frame with CANCEL.
pub(crate) fn cancel(stream: u32) -> Vec<u8> {
    frame(wire::RST_STREAM, 0, stream, &word(wire::CANCEL))
}

/// Returns a SETTINGS frame with this initial window of each stream.
pub(crate) fn stream_window(bytes: u32) -> Vec<u8> {
    frame(wire::SETTINGS, 0, 0, &[&[0, 4][..], &word(bytes)].concat())
}

/// Returns the first request of an HPACK bomb, which adds a header of 4 KB to the decoder's table.
pub(crate) fn bomb_fuse(stream: u32, path: &str) -> Vec<u8> {
    let mut block = block(path);
    // A literal with incremental indexing: the name "x", and a value whose length is an integer of
    // three bytes.
    block.extend(b"\x40\x01x\x7f");
    let rest = BOMB_VALUE_BYTES - 127;
    block.extend([u8::try_from(rest & 0x7f).unwrap() | 0x80, u8::try_from(rest >> 7).unwrap()]);
    block.resize(block.len() + BOMB_VALUE_BYTES, b'v');
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// Returns a request that repeats the header of 4 KB `times` times, with one byte for each
/// repetition.
pub(crate) fn bomb(stream: u32, path: &str, times: usize) -> Vec<u8> {
    let mut block = block(path);
    block.resize(block.len() + times, 0xbe);
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}
