//! HPACK (RFC 7541). Header blocks are decoded with the connection's state, and encoded without
//! state.

mod decode;
mod encode;
mod huffman;
mod integer;
mod table;

use bytes::Bytes;

pub use decode::HpackDecoder;
pub use encode::encode;

/// A header field of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// Name in lower case. Pseudo-headers begin with a colon.
    pub name: Bytes,
    /// Value, which may be any bytes.
    pub value: Bytes,
    /// Whether the field was sent as "never indexed". A proxy must forward it in the same form.
    pub sensitive: bool,
}

/// Reason why a header block cannot be decoded. Each is a connection error of type
/// `COMPRESSION_ERROR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends in the middle of a field.
    #[error("the header block is cut off")]
    CutOff,
    /// An integer does not fit into 32 bits.
    #[error("an integer is out of range")]
    Integer,
    /// The index is 0, or beyond both tables.
    #[error("there is no header field with index {0}")]
    Index(usize),
    /// A string is not valid Huffman code, or its padding is longer than seven bits or contains a
    /// zero.
    #[error("a string is not well-formed Huffman code")]
    Huffman,
    /// A size update follows a field, or exceeds the allowed table size in bytes.
    #[error("a dynamic table size update is misplaced or asks for more than {0} bytes")]
    TableSize(usize),
    /// The fields together exceed the limit in bytes.
    #[error("the header fields are larger than {0} bytes together")]
    TooLarge(usize),
}

impl HeaderField {
    /// Creates a field that may be indexed.
    #[must_use]
    pub fn new(name: &str, value: &str) -> Self {
        let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        Self { name: copy(name), value: copy(value), sensitive: false }
    }

    /// Returns the size as HPACK and HTTP/2 count it: the lengths of name and value, plus 32.
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + 32
    }
}

#[cfg(test)]
mod tests;
