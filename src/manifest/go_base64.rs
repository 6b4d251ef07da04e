//! Decodes base64 as Go's `encoding/base64` does. The crate `base64` has other rules for line
//! breaks, and other errors.

/// Whether a text is padded with `=` to groups of four characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// Go's `StdEncoding`.
    Required,
    /// Go's `RawStdEncoding`.
    Forbidden,
}

/// A text is not base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {offset}")]
pub(crate) struct CorruptInputError {
    /// Offset of the error in the text, in bytes.
    offset: usize,
}

/// Decodes a text. Line breaks are ignored, and so are the unused bits of the last character
/// (`decodeQuantum`).
pub(super) fn decode(text: &str, padding: Padding) -> Result<Vec<u8>, CorruptInputError> {
    let text = text.as_bytes();
    let corrupt = |offset| Err(CorruptInputError { offset });
    let mut content = Vec::with_capacity(text.len() / 4 * 3 + 2);
    // Bits and number of the characters of an incomplete group.
    let (mut bits, mut count) = (0_u32, 0_usize);
    let mut next = 0;
    while let Some(&byte) = text.get(next) {
        next += 1;
        if let Some(value) = value(byte) {
            (bits, count) = (bits << 6 | u32::from(value), count + 1);
            if count == 4 {
                content.extend(&bits.to_be_bytes()[1..]);
                (bits, count) = (0, 0);
            }
        } else if byte == b'=' && padding == Padding::Required && count >= 2 {
            next = skip_line_breaks(text, next);
            if count == 2 {
                match text.get(next) {
                    None => return corrupt(text.len()),
                    Some(b'=') => next = skip_line_breaks(text, next + 1),
                    Some(_) => return corrupt(next - 1),
                }
            }
            if next < text.len() {
                return corrupt(next);
            }
            content.extend(last_bytes(bits, count));
            return Ok(content);
        } else if !is_line_break(byte) {
            return corrupt(next - 1);
        }
    }
    if count == 1 || count > 0 && padding == Padding::Required {
        return corrupt(next - count);
    }
    content.extend(last_bytes(bits, count));
    Ok(content)
}

/// Returns the bytes of an incomplete group: one of two characters, two of three.
fn last_bytes(bits: u32, count: usize) -> impl Iterator<Item = u8> {
    let bytes = (bits << (6 * (4 - count))).to_be_bytes();
    bytes.into_iter().skip(1).take(count.saturating_sub(1))
}

/// Returns the six bits of a character of the alphabet.
fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

fn skip_line_breaks(text: &[u8], from: usize) -> usize {
    from + text[from..].iter().take_while(|byte| is_line_break(**byte)).count()
}

fn is_line_break(byte: u8) -> bool {
    [b'\r', b'\n'].contains(&byte)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};

    use super::*;

    /// The expectations are the results of Go 1.26.
    #[test]
    fn base64_is_decoded_as_by_go() {
        for (text, padded, raw) in [
            ("", Ok(&b""[..]), Ok(&b""[..])),
            ("=", Err(0), Err(0)),
            ("a", Err(0), Err(0)),
            ("a=", Err(1), Err(1)),
            ("aa", Err(0), Ok(b"i")),
            ("aa=", Err(3), Err(2)),
            ("aa==", Ok(b"i"), Err(2)),
            ("aa=\n=", Ok(b"i"), Err(2)),
            ("aa==\n", Ok(b"i"), Err(2)),
            ("ab==", Ok(b"i"), Err(2)),
            ("aaa", Err(0), Ok(b"i\xa6")),
            ("aab=", Ok(b"i\xa6"), Err(3)),
            ("aaa=a", Err(4), Err(3)),
            ("aaaa=", Err(4), Err(4)),
            ("aa=a", Err(2), Err(2)),
            ("a\na", Err(1), Ok(b"i")),
            ("aaaa\n", Ok(b"i\xa6\x9a"), Ok(b"i\xa6\x9a")),
            ("aaaa a", Err(4), Err(4)),
            ("aaaaa", Err(4), Err(4)),
            ("aa=\nb", Err(3), Err(2)),
            ("aa=\n", Err(4), Err(2)),
            ("-_", Err(0), Err(0)),
            ("aaaa\r\naa==\r\n", Ok(b"i\xa6\x9ai"), Err(8)),
            ("aa==aa==", Err(4), Err(2)),
        ] {
            for (padding, expected) in [(Padding::Required, padded), (Padding::Forbidden, raw)] {
                let expected = expected.map(<[u8]>::to_vec).map_err(|offset| CorruptInputError { offset });
                assert_eq!(decode(text, padding), expected, "{text:?} {padding:?}");
            }
        }
        let all: Vec<u8> = (0..=255).collect();
        for length in 250..256 {
            let all = &all[..length];
            assert_eq!(decode(&BASE64_STANDARD.encode(all), Padding::Required).unwrap(), all);
            assert_eq!(decode(&BASE64_STANDARD_NO_PAD.encode(all), Padding::Forbidden).unwrap(), all);
        }
    }
}
