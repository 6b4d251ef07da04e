//! Encodes header blocks. Every field is a literal without indexing, so that the encoder has no
//! state.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{HeaderField, integer};

/// Returns a block that any decoder can read, whatever the decoder's state is.
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
