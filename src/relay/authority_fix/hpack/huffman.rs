//! Decodes the Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their
//! symbols, and the codes of each length continue after those of the shorter length. The lengths
//! alone therefore define the code.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::HpackError;

/// Length in bits of the code of each byte. The last entry belongs to the end-of-string symbol.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const END_OF_STRING: u16 = 256;
const MAX_CODE_BITS: usize = 30;

/// Codes by length: the first code, the number of codes, and the position of their symbols.
struct Codes {
    first: [u32; MAX_CODE_BITS + 1],
    count: [u32; MAX_CODE_BITS + 1],
    start: [usize; MAX_CODE_BITS + 1],
    symbols: [u16; 257],
}

static CODES: Codes = Codes::new();

impl Codes {
    const fn new() -> Self {
        let mut codes = Self {
            first: [0; MAX_CODE_BITS + 1],
            count: [0; MAX_CODE_BITS + 1],
            start: [0; MAX_CODE_BITS + 1],
            symbols: [0; 257],
        };
        let (mut code, mut sorted, mut length) = (0, 0, 1);
        while length <= MAX_CODE_BITS {
            code <<= 1;
            codes.first[length] = code;
            codes.start[length] = sorted;
            let mut symbol = 0;
            while symbol <= END_OF_STRING {
                if LENGTHS[symbol as usize] as usize == length {
                    codes.symbols[sorted] = symbol;
                    sorted += 1;
                    code += 1;
                }
                symbol += 1;
            }
            codes.count[length] = code - codes.first[length];
            length += 1;
        }
        codes
    }
}

/// Decodes a string. `limit` is the maximum number of decoded bytes.
pub(super) fn decode(encoded: &[u8], limit: usize) -> Result<Bytes, HpackError> {
    let mut decoded = BytesMut::with_capacity((encoded.len() * 8 / 5).min(limit));
    let (mut code, mut length) = (0_u32, 0_usize);
    for bit in encoded.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1))) {
        code = code << 1 | bit;
        length += 1;
        if length > MAX_CODE_BITS {
            return Err(HpackError::Huffman);
        }
        let Some(nth) = code.checked_sub(CODES.first[length]).filter(|nth| *nth < CODES.count[length]) else {
            continue;
        };
        // Each symbol except end-of-string is a byte. An end-of-string inside a string is an error.
        let symbol = CODES.symbols[CODES.start[length] + nth as usize];
        decoded.put_u8(u8::try_from(symbol).map_err(|_| HpackError::Huffman)?);
        if decoded.len() > limit {
            return Err(HpackError::TooLarge(limit));
        }
        (code, length) = (0, 0);
    }
    // The remaining bits are padding: the beginning of the end-of-string code, which is all ones.
    if length > 7 || code != (1 << length) - 1 {
        return Err(HpackError::Huffman);
    }
    Ok(decoded.freeze())
}
