//! Texts in reasons and differences. A container determines some of them, such as its users and
//! its directories, so their length is limited.

/// Returns bytes as a text of at most `max` bytes, which ends with an ellipsis if it was cut.
#[must_use]
pub fn shortened(bytes: &[u8], max: usize) -> String {
    /// The mark of a text that was cut.
    const ELLIPSIS: char = '…';
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(max + 1)]);
    if text.len() <= max {
        return text.into_owned();
    }
    let mut end = max.saturating_sub(ELLIPSIS.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut text = text.into_owned();
    text.truncate(end);
    text.push(ELLIPSIS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_beyond_the_limit_is_cut_between_characters_and_marked() {
        assert_eq!(shortened(b"home", 4), "home");
        assert_eq!(shortened(b"/home", 4), "/…");
        assert_eq!(shortened("äöü".as_bytes(), 6), "äöü");
        assert_eq!(shortened("äöüä".as_bytes(), 6), "ä…");
        // A byte that is no text becomes a character of three bytes.
        for length in [1, 2, 5, 100_000] {
            let cut = shortened(&vec![0xff; length], 8);
            assert!(cut.len() <= 8 && !cut.is_empty(), "{length}: {cut}");
        }
    }
}
