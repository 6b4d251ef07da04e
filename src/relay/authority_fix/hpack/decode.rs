//! Decodes header blocks (RFC 7541, sections 3 and 6).

use bytes::Bytes;

use super::table::{DynamicTable, MAX_SIZE};
use super::{HeaderField, HpackError, huffman, integer};

/// Decodes the header blocks of one direction of a connection, in order.
#[derive(Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
    max_list: usize,
}

impl HpackDecoder {
    /// Creates a decoder for a new connection. `max_list` limits the fields of one block, in bytes
    /// as HTTP/2 counts them.
    #[must_use]
    pub fn new(max_list: usize) -> Self {
        Self { table: DynamicTable::default(), max_list }
    }

    /// Decodes one complete block. After an error, neither the decoder nor the connection can be
    /// used any further.
    pub fn decode(&mut self, mut block: &[u8]) -> Result<Vec<HeaderField>, HpackError> {
        let mut fields = Vec::new();
        let mut size = 0;
        while let Some(&first) = block.first() {
            let (field, rest) = match first {
                0x80.. => self.indexed(block)?,
                0x40.. => {
                    let (field, rest) = self.literal(block, 6)?;
                    self.table.insert(field.clone());
                    (field, rest)
                }
                0x20.. if fields.is_empty() => {
                    let (limit, rest) = integer::decode(block, 5)?;
                    self.table.set_limit(limit)?;
                    block = rest;
                    continue;
                }
                0x20.. => return Err(HpackError::TableSize(MAX_SIZE)),
                _ => {
                    let (field, rest) = self.literal(block, 4)?;
                    (HeaderField { sensitive: first & 0x10 != 0, ..field }, rest)
                }
            };
            size += field.size();
            if size > self.max_list {
                return Err(HpackError::TooLarge(self.max_list));
            }
            fields.push(field);
            block = rest;
        }
        Ok(fields)
    }

    fn indexed<'a>(&self, block: &'a [u8]) -> Result<(HeaderField, &'a [u8]), HpackError> {
        let (index, rest) = integer::decode(block, 7)?;
        Ok((self.table.get(index)?, rest))
    }

    fn literal<'a>(&self, block: &'a [u8], prefix: u32) -> Result<(HeaderField, &'a [u8]), HpackError> {
        let (index, rest) = integer::decode(block, prefix)?;
        let (name, rest) = if index == 0 { self.string(rest)? } else { (self.table.get(index)?.name, rest) };
        let (value, rest) = self.string(rest)?;
        Ok((HeaderField { name, value, sensitive: false }, rest))
    }

    fn string<'a>(&self, block: &'a [u8]) -> Result<(Bytes, &'a [u8]), HpackError> {
        let is_huffman = block.first().ok_or(HpackError::CutOff)? & 0x80 != 0;
        let (length, rest) = integer::decode(block, 7)?;
        let (string, rest) = rest.split_at_checked(length).ok_or(HpackError::CutOff)?;
        let string =
            if is_huffman { huffman::decode(string, self.max_list)? } else { Bytes::copy_from_slice(string) };
        Ok((string, rest))
    }
}
