//! HPACK (RFC 7541): header blocks, read with all their state and written without any.

mod decode;
mod encode;
mod huffman;
mod integer;
mod table;

use bytes::Bytes;

pub use decode::HpackDecoder;
pub use encode::encode;

/// One header field of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// The name, in lower case; pseudo headers begin with a colon.
    pub name: Bytes,
    /// The value, any bytes.
    pub value: Bytes,
    /// Sent as "never indexed": whoever passes it on must send it so too.
    pub sensitive: bool,
}

/// Why a header block cannot be read. Each is a connection error of type `COMPRESSION_ERROR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends in the middle of a field.
    #[error("the header block is cut off")]
    CutOff,
    /// An integer does not fit 32 bits.
    #[error("an integer is out of range")]
    Integer,
    /// An index beyond both tables, or 0.
    #[error("there is no header field with index {0}")]
    Index(usize),
    /// A string is not a Huffman code, or is padded with more than seven bits or with other bits than ones.
    #[error("a string is not well-formed Huffman code")]
    Huffman,
    /// A size update stands behind a field, or asks for more than was allowed.
    #[error("a dynamic table size update is misplaced or asks for more than {0} bytes")]
    TableSize(usize),
    /// The fields are too large together.
    #[error("the header fields are larger than {0} bytes together")]
    TooLarge(usize),
}

impl HeaderField {
    /// A field that may be indexed.
    #[must_use]
    pub fn new(name: &str, value: &str) -> Self {
        let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        Self { name: copy(name), value: copy(value), sensitive: false }
    }

    /// The size as HPACK and HTTP/2 count it: both lengths and 32.
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + 32
    }
}

#[cfg(test)]
mod tests;
