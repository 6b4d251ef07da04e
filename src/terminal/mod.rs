//! What people read on a terminal: text that nothing in it can disturb, figures with three digits, and how much fits.

pub(crate) mod human;
pub(crate) mod screen;

pub use screen::print;

/// Whether `NO_COLOR` asks for output without colours; empty, it asks for nothing.
#[must_use]
pub fn is_no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// A text in which nothing moves the cursor, changes the colour or the direction of writing: such characters are shown as their
/// codes. What names and commands are made of is for their authors to choose.
#[must_use]
pub fn harmless(text: &str) -> String {
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

/// Whether a character shows itself and does nothing else; formatting characters do not.
#[must_use]
pub fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_its_code() {
        assert_eq!(harmless("a\u{1b}[31mb"), r"a\u{1b}[31mb");
        assert_eq!(harmless("a\nb\tc\u{7}"), r"a\nb\tc\u{7}");
        assert_eq!(harmless("a\u{202e}b\u{9b}c"), r"a\u{202e}b\u{9b}c");
        assert_eq!(harmless("it's \"good\" \\ größer 日本"), "it's \"good\" \\ größer 日本");
    }
}
