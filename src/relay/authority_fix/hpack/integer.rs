//! Integers with a prefix of fewer than eight bits (RFC 7541, section 5.1).

use bytes::{BufMut as _, BytesMut};

use super::HpackError;

/// Reads an integer whose first `prefix` bits are in the first byte. Returns the integer and the
/// bytes after it.
pub(super) fn decode(bytes: &[u8], prefix: u32) -> Result<(usize, &[u8]), HpackError> {
    let (&first, mut rest) = bytes.split_first().ok_or(HpackError::CutOff)?;
    let mask = (1_u32 << prefix) - 1;
    let mut value = u32::from(first) & mask;
    if value < mask {
        return Ok((value as usize, rest));
    }
    let mut shift = 0;
    loop {
        let (&byte, behind) = rest.split_first().ok_or(HpackError::CutOff)?;
        rest = behind;
        let bits = u32::from(byte & 0x7f);
        // Five groups of seven bits exceed 32 bits. A larger value is neither a valid length nor a
        // valid index.
        let added = bits.checked_mul(1_u32.checked_shl(shift).ok_or(HpackError::Integer)?);
        value = added.and_then(|added| value.checked_add(added)).ok_or(HpackError::Integer)?;
        if byte & 0x80 == 0 {
            return Ok((value as usize, rest));
        }
        shift += 7;
    }
}

/// Writes the length of a string that is not Huffman-coded: a prefix of seven bits, and no flag.
pub(super) fn encode_length(length: usize, out: &mut BytesMut) {
    const MASK: usize = 0x7f;
    let low = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    if length < MASK {
        return out.put_u8(low(length));
    }
    out.put_u8(low(MASK));
    let mut rest = length - MASK;
    while rest > MASK {
        out.put_u8(low(rest & MASK) | 0x80);
        rest >>= 7;
    }
    out.put_u8(low(rest));
}
