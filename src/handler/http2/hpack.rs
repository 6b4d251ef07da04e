//! Header compression of HTTP/2 (RFC 7541), decoded as Go does (`golang.org/x/net/http2/hpack`).

use std::collections::VecDeque;

use super::huffman;

/// Maximum size of the dynamic table, which is that of a connection without settings.
const TABLE_SIZE: usize = 4096;

/// Number of bytes that count for each field beside its name and value.
const OVERHEAD: usize = 32;

/// Name and value of a field.
pub(in crate::handler) type Field = (Vec<u8>, Vec<u8>);

/// The static table (RFC 7541, appendix A).
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// A field block that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidBlock;

/// Reason for which no field was decoded.
#[derive(Debug)]
enum Stop {
    /// The field is not complete.
    Incomplete,
    Invalid,
}

/// Decodes the field blocks of a connection.
#[derive(Debug)]
pub(super) struct Decoder {
    /// Fields of the dynamic table, the newest first.
    table: VecDeque<Field>,
    table_size: usize,
    max_table_size: usize,
    /// Maximum length of a name or value.
    max_text: usize,
    /// Begin of a field that is not complete.
    rest: Vec<u8>,
    /// Whether no field of the block has been decoded.
    is_first: bool,
}

/// Returns the size of a field.
pub(super) fn size_of((name, value): &Field) -> usize {
    name.len() + value.len() + OVERHEAD
}

impl Decoder {
    pub(super) fn new(max_text: usize) -> Self {
        Self {
            table: VecDeque::new(),
            table_size: 0,
            max_table_size: TABLE_SIZE,
            max_text,
            rest: Vec::new(),
            is_first: true,
        }
    }

    /// Decodes a part of a block, and passes its fields on.
    pub(super) fn decode(&mut self, part: &[u8], mut field: impl FnMut(Field)) -> Result<(), InvalidBlock> {
        if part.is_empty() {
            return Ok(());
        }
        let mut block = std::mem::take(&mut self.rest);
        block.extend_from_slice(part);
        let mut decoded = 0;
        while decoded < block.len() {
            let mut reader = Reader { left: &block[decoded..], max_text: self.max_text };
            match self.representation(&mut reader) {
                Ok(found) => {
                    decoded = block.len() - reader.left.len();
                    found.into_iter().for_each(&mut field);
                }
                Err(Stop::Incomplete) => break,
                Err(Stop::Invalid) => return Err(InvalidBlock),
            }
            self.is_first = false;
        }
        block.drain(..decoded);
        self.rest = block;
        Ok(())
    }

    /// Ends a block. A field that is not complete is an error.
    pub(super) fn end_block(&mut self) -> Result<(), InvalidBlock> {
        self.is_first = true;
        if self.rest.is_empty() { Ok(()) } else { Err(InvalidBlock) }
    }

    /// Decodes a field, or a change of the size of the table.
    fn representation(&mut self, reader: &mut Reader<'_>) -> Result<Option<Field>, Stop> {
        let first = *reader.left.first().ok_or(Stop::Incomplete)?;
        if first & 0x80 != 0 {
            let index = reader.number(7)?;
            return self.entry(index).map(Some);
        }
        if first & 0xe0 == 0x20 {
            if !self.is_first && self.table_size > 0 {
                return Err(Stop::Invalid);
            }
            let size = usize::try_from(reader.number(5)?).map_err(|_| Stop::Invalid)?;
            if size > TABLE_SIZE {
                return Err(Stop::Invalid);
            }
            self.max_table_size = size;
            self.evict();
            return Ok(None);
        }
        let is_indexed = first & 0xc0 == 0x40;
        let name = match reader.number(if is_indexed { 6 } else { 4 })? {
            0 => reader.text()?,
            index => self.entry(index)?.0,
        };
        let field = (name, reader.text()?);
        if is_indexed {
            self.table_size += size_of(&field);
            self.table.push_front(field.clone());
            self.evict();
        }
        Ok(Some(field))
    }

    /// Returns the entry of the tables with a number, from 1.
    fn entry(&self, index: u64) -> Result<Field, Stop> {
        let index =
            usize::try_from(index).ok().and_then(|index| index.checked_sub(1)).ok_or(Stop::Invalid)?;
        if let Some((name, value)) = STATIC_TABLE.get(index) {
            return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        self.table.get(index - STATIC_TABLE.len()).cloned().ok_or(Stop::Invalid)
    }

    fn evict(&mut self) {
        while self.table_size > self.max_table_size {
            let Some(oldest) = self.table.pop_back() else { break };
            self.table_size -= size_of(&oldest);
        }
    }
}

/// Reads numbers and texts.
struct Reader<'a> {
    left: &'a [u8],
    max_text: usize,
}

impl<'a> Reader<'a> {
    /// Reads a number of which the first byte has this number of bits.
    fn number(&mut self, bits: u32) -> Result<u64, Stop> {
        let (first, mut left) = self.left.split_first().ok_or(Stop::Incomplete)?;
        let most = (1_u64 << bits) - 1;
        let mut number = u64::from(*first) & most;
        let mut shift = 0;
        let mut is_complete = number < most;
        while !is_complete {
            let (byte, rest) = left.split_first().ok_or(Stop::Incomplete)?;
            number = number.saturating_add(u64::from(byte & 0x7f) << shift);
            left = rest;
            is_complete = byte & 0x80 == 0;
            shift += 7;
            if !is_complete && shift >= 63 {
                return Err(Stop::Invalid);
            }
        }
        self.left = left;
        Ok(number)
    }

    fn text(&mut self) -> Result<Vec<u8>, Stop> {
        let is_huffman = self.left.first().ok_or(Stop::Incomplete)? & 0x80 != 0;
        let length = usize::try_from(self.number(7)?).map_err(|_| Stop::Invalid)?;
        if length > self.max_text {
            return Err(Stop::Invalid);
        }
        let (text, left): (&'a [u8], _) = self.left.split_at_checked(length).ok_or(Stop::Incomplete)?;
        self.left = left;
        if !is_huffman {
            return Ok(text.to_vec());
        }
        let decoded = huffman::decode(text).ok_or(Stop::Invalid)?;
        if decoded.len() > self.max_text { Err(Stop::Invalid) } else { Ok(decoded) }
    }
}

/// Encodes fields as literals that no table has.
pub(super) fn encode(fields: &[Field]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            add_number(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// Adds a number of which the first byte has seven bits.
fn add_number(block: &mut Vec<u8>, number: usize) {
    const MOST: usize = 0x7f;
    let Some(mut rest) = number.checked_sub(MOST) else {
        block.push(u8::try_from(number).unwrap_or_default());
        return;
    };
    block.push(0x7f);
    while rest >= 0x80 {
        block.push(u8::try_from(rest & 0x7f).unwrap_or_default() | 0x80);
        rest >>= 7;
    }
    block.push(u8::try_from(rest).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(decoder: &mut Decoder, blocks: &[&[u8]]) -> Result<Vec<(String, String)>, InvalidBlock> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let mut fields = Vec::new();
        for part in blocks {
            decoder.decode(part, |(name, value)| fields.push((text(name), text(value))))?;
        }
        decoder.end_block()?;
        Ok(fields)
    }

    fn fields(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Decodes the responses of RFC 7541, appendix C.6, with a table of 256 bytes.
    #[test]
    fn the_examples_of_the_specification_are_decoded() {
        let mut decoder = Decoder::new(1 << 20);
        let size = [0x3f, 0xe1, 0x01];
        let first: Vec<u8> = [
            &size[..],
            &[0x48, 0x82, 0x64, 0x02, 0x58, 0x85, 0xae, 0xc3, 0x77, 0x1a, 0x4b, 0x61, 0x96],
            &[0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b, 0x81],
            &[0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff, 0x6e, 0x91, 0x9d, 0x29, 0xad, 0x17, 0x18, 0x63],
            &[0xc7, 0x8f, 0x0b, 0x97, 0xc8, 0xe9, 0xae, 0x82, 0xae, 0x43, 0xd3],
        ]
        .concat();
        let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
        let location = ("location", "https://www.example.com");
        let control = ("cache-control", "private");
        assert_eq!(
            decoded(&mut decoder, &[&first]),
            Ok(fields(&[(":status", "302"), control, date, location]))
        );
        // The status takes the place of the oldest field.
        let second = [0x48, 0x83, 0x64, 0x0e, 0xff, 0xc1, 0xc0, 0xbf];
        assert_eq!(
            decoded(&mut decoder, &[&second]),
            Ok(fields(&[(":status", "307"), control, date, location]))
        );
    }

    #[test]
    fn blocks_that_are_invalid_are_refused() {
        let decode = |block: &[u8]| decoded(&mut Decoder::new(100), &[block]);
        assert_eq!(decode(&[0x80]), Err(InvalidBlock), "no entry has the number 0");
        assert_eq!(decode(&[0xff, 0x80, 0x01]), Err(InvalidBlock), "no such entry");
        assert_eq!(decode(&[0x88, 0x00, 0x01]), Err(InvalidBlock), "incomplete");
        assert_eq!(decode(&[0x00, 0x7f, 0x00]), Err(InvalidBlock), "a text that is too long");
        assert_eq!(decode(&[0x3f, 0xe2, 0x1f]), Err(InvalidBlock), "a table that is too large");
        assert_eq!(decode(&[0xff; 12]), Err(InvalidBlock), "a number without an end");
        assert_eq!(
            decode(&[0x40, 0x01, b'a', 0x01, b'b', 0x20]),
            Err(InvalidBlock),
            "a late change of the table"
        );
        assert_eq!(decode(&[0x40, 0x01, b'a', 0x01, b'b', 0xbe]), Ok(fields(&[("a", "b"), ("a", "b")])));
    }

    proptest! {
        #[test]
        fn encoded_fields_are_decoded_in_any_parts(
            texts in proptest::collection::vec("[a-z]{0,300}", 0..8), cut in any::<prop::sample::Index>(),
        ) {
            let all: Vec<Field> = texts.chunks_exact(2).map(|two| (two[0].clone().into(), two[1].clone().into())).collect();
            let block = encode(&all);
            let cut = cut.index(block.len() + 1);
            let mut found = Vec::new();
            let mut decoder = Decoder::new(1000);
            for part in [&block[..cut], &block[cut..]] {
                decoder.decode(part, |field| found.push(field)).unwrap();
            }
            decoder.end_block().unwrap();
            prop_assert_eq!(found, all);
        }

        #[test]
        fn no_block_panics(block in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut decoder = Decoder::new(50);
            let _ = decoder.decode(&block, drop);
            let _ = decoder.end_block();
        }
    }
}
