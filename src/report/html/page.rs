//! Writes markup. Only texts of the program are markup; one function escapes every other text.

use std::fmt::{self, Display, Write};

use crate::terminal::{MAX_NAME_WIDTH, is_printable, shortened};

/// Maximum width of a text that is not a name, in columns. The JSON has the complete text.
const MAX_TEXT_WIDTH: usize = 600;

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Page {
    written: String,
}

impl Page {
    /// Appends markup, which is a text of the program.
    pub(super) fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.written.push_str(markup);
        self
    }

    /// Appends a value as text: a number, a duration, or the value of an attribute in quotes.
    pub(super) fn text(&mut self, value: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        let _ = write!(Escaped(&mut self.written), "{value}");
        self
    }

    /// Appends a name or a command that others have chosen. Its direction of writing does not
    /// affect the text around it.
    pub(super) fn name(&mut self, name: &str) -> &mut Self {
        self.markup("<bdi>").text(shortened(name, MAX_NAME_WIDTH)).markup("</bdi>")
    }

    /// Appends a sentence of probeshim, of which the end may be left out. Commands in it, which are
    /// between backticks, are code.
    pub(super) fn sentence(&mut self, sentence: &str) -> &mut Self {
        self.markup("<bdi>");
        let shown = shortened(sentence, MAX_TEXT_WIDTH);
        let mut rest = &*shown;
        while let Some((text, code, after)) = first_code(rest) {
            self.text(text).markup("<code>").text(code).markup("</code>");
            rest = after;
        }
        self.text(rest).markup("</bdi>")
    }

    /// Appends a message or a command that others have written, of which the end may be left out.
    pub(super) fn message(&mut self, message: &str) -> &mut Self {
        self.markup("<bdi>").text(shortened(message, MAX_TEXT_WIDTH)).markup("</bdi>")
    }

    /// Appends elements that a function writes for each item.
    pub(super) fn each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        items.into_iter().for_each(|item| write(self, item));
        self
    }

    /// Appends the number of rows that a list leaves out, if it leaves out some: `7 more pods: a
    /// report in JSON has all`.
    pub(super) fn left_out(&mut self, all: usize, shown: usize, rows: &'static str) {
        if let Some(more @ 1..) = all.checked_sub(shown) {
            self.markup("<p>").text(more).markup(" more ").markup(rows).markup(": ");
            self.markup("a report in JSON (<code>-o FILE.json</code>) has all</p>\n");
        }
    }

    /// Returns the markup.
    pub(super) fn finish(self) -> String {
        self.written
    }
}

/// Returns the text before the first code between backticks, the code, and the text after it;
/// `None` without code.
fn first_code(sentence: &str) -> Option<(&str, &str, &str)> {
    let (text, rest) = sentence.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((text, code, after))
}

/// Escapes all that is written: markup, and characters that are invisible or change the direction
/// of writing. The latter are shown by their codes.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c if is_printable(c) => self.0.push(c),
                c => self.0.extend(c.escape_debug()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut page = Page::default();
        page.text(text);
        page.finish()
    }

    #[test]
    fn markup_in_a_text_is_shown_as_text() {
        assert_eq!(
            escaped(r#"<script>alert('a & "b"')</script>"#),
            "&lt;script&gt;alert(&#39;a &amp; &quot;b&quot;&#39;)&lt;/script&gt;"
        );
    }

    #[test]
    fn control_characters_in_a_text_are_shown_as_their_codes() {
        assert_eq!(escaped("a\u{0}\u{1b}[31m\n\t\u{7f}\u{9b}"), r"a\0\u{1b}[31m\n\t\u{7f}\u{9b}");
    }

    #[test]
    fn marks_that_change_the_direction_of_writing_are_shown_as_their_codes() {
        assert_eq!(escaped("\u{202e}gpj.exe\u{2066}\u{200f}"), r"\u{202e}gpj.exe\u{2066}\u{200f}");
        assert_eq!(escaped("größer 日本 שלום"), "größer 日本 שלום", "letters stay");
    }

    #[test]
    fn commands_between_the_backticks_of_a_sentence_are_code() {
        let written = |sentence: &str| {
            let mut page = Page::default();
            page.sentence(sentence);
            page.finish()
        };
        assert_eq!(
            written("Run `a <b>` or `c`, not d."),
            "<bdi>Run <code>a &lt;b&gt;</code> or <code>c</code>, not d.</bdi>"
        );
        assert_eq!(written("one ` is left"), "<bdi>one ` is left</bdi>");
        let mut page = Page::default();
        page.message("echo `date`");
        assert_eq!(page.finish(), "<bdi>echo `date`</bdi>", "a command of others is shown as it is");
    }

    #[test]
    fn a_name_is_isolated_and_shortened() {
        let mut page = Page::default();
        page.name(&"n".repeat(1000));
        assert_eq!(page.finish(), format!("<bdi>{}…</bdi>", "n".repeat(MAX_NAME_WIDTH - 1)));
    }
}
