//! Output for people on a terminal: sanitized texts, numbers with three digits, and widths.

pub(crate) mod format;
pub(crate) mod screen;

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar as _;

pub use screen::print;

/// Maximum width of a text, in columns, if the terminal sets no limit. The longest legitimate text,
/// the output of a failed probe, has 10 KiB. Programs use JSON, which is complete.
pub const MAX_TEXT_WIDTH: usize = 16 << 10;

/// Maximum width of a name within a longer text, in columns. The longest `NAMESPACE/POD CONTAINER`
/// that Kubernetes allows has 381.
pub const MAX_NAME_WIDTH: usize = 384;

/// Maximum number of characters per column of a shortened text, since some characters take no
/// column.
const MAX_CHARS_PER_COLUMN: usize = 4;

/// Whether the environment variable `NO_COLOR` disables colours. An empty value does not.
#[must_use]
pub fn is_no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Returns the text with control and formatting characters replaced by their codes, so that it
/// cannot move the cursor, or change colours or the direction of writing. Authors of names and
/// commands choose them freely.
#[must_use]
pub fn sanitize(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_printable(c) {
            safe.push(c);
        } else {
            safe.extend(c.escape_debug());
        }
    }
    safe
}

/// Returns the width of a text on a terminal, in columns: the sum of the widths of its characters,
/// as terminals count it.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Returns the text, or the longest prefix that fits into this number of columns together with an
/// ellipsis.
#[must_use]
pub fn shortened(text: &str, columns: usize) -> Cow<'_, str> {
    let max_chars = columns.saturating_mul(MAX_CHARS_PER_COLUMN);
    // End of the prefix that fits before an ellipsis.
    let (mut used, mut end) = (0, 0);
    for (place, (start, c)) in text.char_indices().enumerate() {
        used += c.width().unwrap_or(0);
        if used > columns || place >= max_chars {
            let ellipsis = if columns == 0 { "" } else { "…" };
            return Cow::Owned([&text[..end], ellipsis].concat());
        }
        if used < columns {
            end = start + c.len_utf8();
        }
    }
    Cow::Borrowed(text)
}

/// Returns a name sanitized and shortened, for use within a sentence.
#[must_use]
pub fn harmless_name(name: &str) -> String {
    shortened(&sanitize(&shortened(name, MAX_NAME_WIDTH)), MAX_NAME_WIDTH).into_owned()
}

/// Returns a text sanitized and shortened.
#[must_use]
pub fn harmless_text(text: &str) -> String {
    shortened(&sanitize(&shortened(text, MAX_TEXT_WIDTH)), MAX_TEXT_WIDTH).into_owned()
}

/// Returns a text whose lines are sanitized and shortened. Each ends with a line feed.
#[must_use]
pub fn harmless_lines(text: &str) -> String {
    text.lines().map(|line| harmless_text(line) + "\n").collect()
}

/// Whether a character is visible and has no other effect. Formatting characters are not printable.
#[must_use]
pub fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_shortened_to_display_columns_and_not_to_characters() {
        for (text, columns, shown) in [
            ("name", 4, "name"),
            ("names", 4, "nam…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("日本語", 1, "…"),
            ("日本語", 0, ""),
            ("", 0, ""),
        ] {
            assert_eq!(shortened(text, columns), shown, "{text:?} in {columns}");
        }
        let no_width = "\u{1160}".repeat(1_000_000);
        assert!(
            shortened(&no_width, 10).chars().count() <= 41,
            "characters without a width are shortened too"
        );
    }

    proptest! {
        #[test]
        fn a_shortened_text_fits_and_a_text_that_fits_is_whole(text in any::<String>(), columns in 0..40_usize) {
            let shown = shortened(&text, columns);
            prop_assert!(width(&shown) <= columns);
            if width(&text) <= columns && text.chars().count() <= columns {
                prop_assert_eq!(&*shown, &*text);
            }
        }
    }

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(sanitize("a\u{1b}[31mb"), r"a\u{1b}[31mb");
        assert_eq!(sanitize("a\nb\tc\u{7}"), r"a\nb\tc\u{7}");
        assert_eq!(sanitize("a\u{202e}b\u{9b}c"), r"a\u{202e}b\u{9b}c");
        assert_eq!(sanitize("it's \"good\" \\ größer 日本"), "it's \"good\" \\ größer 日本");
    }
}
