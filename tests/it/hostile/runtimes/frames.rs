//! Frames that a runtime sends to a client whose call has stream 1.

use fixtures::http2::wire::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame, word,
};

/// Header blocks. The static table of HPACK has `:status` 200 and 500, but not 100.
pub(super) const STATUS_200: &[u8] = b"\x88";
pub(super) const STATUS_500: &[u8] = b"\x8e";
pub(super) const STATUS_100: &[u8] = b"\x08\x03100";

/// A message of three bytes in gRPC framing.
pub(super) const MESSAGE: &[u8] = b"\0\0\0\0\x03yes";

/// Returns a server's settings, followed by frames.
pub(super) fn frames(frames: &[Vec<u8>]) -> Vec<u8> {
    [frame(SETTINGS, 0, 0, &[]), frames.concat()].concat()
}

/// Returns the head of an answer, without END_STREAM.
pub(super) fn head(block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, block)
}

pub(super) fn message(flags: u8) -> Vec<u8> {
    frame(DATA, flags, 1, MESSAGE)
}

/// Returns a header field with a literal name, which is not indexed. The value has at most 126
/// bytes.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

pub(super) fn trailers(code: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &field("grpc-status", code))
}

pub(super) fn goaway(last_stream: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[word(last_stream), word(code)].concat())
}

pub(super) fn reset(code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &word(code))
}

/// Returns the head of an answer with a header of 2 MiB, in frames of 16 KiB.
pub(super) fn large_head() -> Vec<u8> {
    // The length of the value is encoded as 127 in a prefix of seven bits, and the rest in groups
    // of seven bits.
    let mut block = [STATUS_200, b"\0\x01a\x7f"].concat();
    let mut rest = (2_usize << 20) - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    block.push(u8::try_from(rest).unwrap());
    block.resize(block.len() + (2 << 20), b'x');
    let parts: Vec<&[u8]> = block.chunks(16 << 10).collect();
    let last = parts.len() - 1;
    let part = |(nth, part): (usize, &&[u8])| {
        let kind = if nth == 0 { HEADERS } else { CONTINUATION };
        frame(kind, if nth == last { END_HEADERS } else { 0 }, 1, part)
    };
    parts.iter().enumerate().flat_map(part).collect()
}

/// Returns a head and a part of a message.
pub(super) fn begun() -> Vec<u8> {
    [head(STATUS_200), frame(DATA, 0, 1, &MESSAGE[..6])].concat()
}
