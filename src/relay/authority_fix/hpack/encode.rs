//! Writing header blocks: every field as a plain literal, so that no state can go wrong.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{HeaderField, integer};

/// A block that any decoder reads, whatever it has read before.
#[must_use]
pub fn encode(fields: &[HeaderField]) -> Bytes {
    let mut block = BytesMut::with_capacity(fields.iter().map(HeaderField::size).sum());
    for field in fields {
        block.put_u8(if field.sensitive { 0x10 } else { 0x00 });
        for string in [&field.name, &field.value] {
            integer::encode_length(string.len(), &mut block);
            block.put_slice(string);
        }
    }
    block.freeze()
}
