//! Header blocks in HEADERS and CONTINUATION frames, and the change that is made to them.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::uri::Authority;

use super::hpack::{self, HeaderField};

/// Authority that replaces an invalid one. Newer clients send it for a unix socket.
const LOCALHOST: &str = "localhost";

/// Size of the largest frame that HTTP/2 allows by default (`SETTINGS_MAX_FRAME_SIZE`). The relay
/// does not raise it.
pub(super) const MAX_FRAME: usize = 16 << 10;

pub(super) const HEADERS: u8 = 0x1;
pub(super) const CONTINUATION: u8 = 0x9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// Returns the header block fragment in the payload of a HEADERS frame, without padding and
/// priority. Returns `None` if the payload is too short for them.
pub(super) fn fragment(flags: u8, payload: &[u8]) -> Option<&[u8]> {
    let (padding, mut rest) = if flags & PADDED == 0 {
        (0, payload)
    } else {
        let (&padding, rest) = payload.split_first()?;
        (usize::from(padding), rest)
    };
    if flags & PRIORITY != 0 {
        rest = rest.get(5..)?;
    }
    rest.get(..rest.len().checked_sub(padding)?)
}

/// Returns whether h2 would refuse the request because of its authority.
pub(super) fn has_invalid_authority(fields: &[HeaderField]) -> bool {
    authority(fields).is_some_and(|field| Authority::try_from(field.value.as_ref()).is_err())
}

/// Encodes the fields as a block. An invalid authority is replaced by one that h2 accepts.
pub(super) fn rewrite_authority(mut fields: Vec<HeaderField>) -> Bytes {
    if has_invalid_authority(&fields) {
        for field in fields.iter_mut().filter(|field| is_authority(field)) {
            field.value = Bytes::from_static(LOCALHOST.as_bytes());
        }
    }
    hpack::encode(&fields)
}

/// Returns a block that no HPACK decoder accepts: a reference to index 0. It replaces a block that
/// our decoder refused.
pub(super) fn broken() -> Bytes {
    Bytes::from_static(&[0x80])
}

/// Writes a block as a HEADERS frame and as many CONTINUATION frames as it needs.
pub(super) fn put_frames(stream: [u8; 4], end_stream: bool, block: &[u8], out: &mut BytesMut) {
    let mut parts = block.chunks(MAX_FRAME).peekable();
    let mut kind = HEADERS;
    let mut flags = if end_stream { END_STREAM } else { 0 };
    loop {
        let part = parts.next().unwrap_or_default();
        if parts.peek().is_none() {
            flags |= END_HEADERS;
        }
        out.put_uint(part.len() as u64, 3);
        out.put_slice(&[kind, flags]);
        out.put_slice(&stream);
        out.put_slice(part);
        if parts.peek().is_none() {
            return;
        }
        (kind, flags) = (CONTINUATION, 0);
    }
}

fn authority(fields: &[HeaderField]) -> Option<&HeaderField> {
    fields.iter().find(|field| is_authority(field))
}

fn is_authority(field: &HeaderField) -> bool {
    field.name == ":authority"
}
