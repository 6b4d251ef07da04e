//! The Huffman code of HPACK (RFC 7541, appendix B).

use std::sync::OnceLock;

/// Length in bits of the code of each byte. Codes of one length follow each other in the order of
/// the bytes, so the lengths define the codes.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];

/// Length of the longest code.
const LONGEST: usize = 30;

/// Maximum number of bits after the last code.
const MAX_PADDING: usize = 7;

/// The codes of one length.
#[derive(Clone, Debug, Default)]
struct Codes {
    /// The first code.
    first: u32,
    /// The bytes, in the order of their codes.
    bytes: Vec<u8>,
}

/// Decodes a text. `None` if it is invalid.
pub(super) fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    let all = codes();
    let (mut decoded, mut code, mut length) = (Vec::with_capacity(2 * encoded.len()), 0_u32, 0_usize);
    for byte in encoded {
        for place in (0..8).rev() {
            code = code << 1 | u32::from(byte >> place & 1);
            length += 1;
            if length > LONGEST {
                return None;
            }
            let of_length = &all[length];
            let index = code.checked_sub(of_length.first).and_then(|index| usize::try_from(index).ok());
            if let Some(byte) = index.and_then(|index| of_length.bytes.get(index)) {
                decoded.push(*byte);
                (code, length) = (0, 0);
            }
        }
    }
    // The padding is the begin of a code that consists of ones.
    let is_padding = length <= MAX_PADDING && code == (1 << length) - 1;
    is_padding.then_some(decoded)
}

/// Returns the codes by their lengths.
fn codes() -> &'static [Codes; LONGEST + 1] {
    static CODES: OnceLock<[Codes; LONGEST + 1]> = OnceLock::new();
    CODES.get_or_init(|| {
        let mut all: [Codes; LONGEST + 1] = std::array::from_fn(|_| Codes::default());
        let mut next = 0_u32;
        for (length, of_length) in all.iter_mut().enumerate() {
            next <<= 1;
            let bytes: Vec<u8> =
                (0..=u8::MAX).filter(|byte| usize::from(LENGTHS[usize::from(*byte)]) == length).collect();
            let count = u32::try_from(bytes.len()).unwrap_or_default();
            *of_length = Codes { first: next, bytes };
            next += count;
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_specification_are_decoded() {
        for (encoded, expected) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], "custom-value"),
            (&[0x64, 0x02], "302"),
            (&[], ""),
        ] {
            assert_eq!(decode(encoded).as_deref(), Some(expected.as_bytes()), "{expected}");
        }
    }

    #[test]
    fn the_padding_is_shorter_than_a_byte_and_consists_of_ones() {
        assert_eq!(decode(&[0x1f]).as_deref(), Some(&b"a"[..]));
        assert_eq!(decode(&[0x1f, 0xff]), None, "more than a byte");
        assert_eq!(decode(&[0x18]), None, "zeros");
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), None, "the end of the text is no byte");
    }

    /// The last code of each length and the begin of the next are no byte's codes twice.
    #[test]
    fn the_longest_codes_are_those_of_the_specification() {
        let codes = codes();
        assert_eq!((codes[5].first, codes[6].first, codes[28].first), (0x0, 0x14, 0x0fff_ffe2));
        assert_eq!((codes[30].first, &codes[30].bytes[..]), (0x3fff_fffc, &[10, 13, 22][..]));
    }
}
