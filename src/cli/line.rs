//! One line of a table, as wide as the terminal at most.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::Style;

use crate::terminal::{shortened, width};

/// A line that grows until it is full. Blanks are held back until something follows them.
pub(super) struct OutputLine {
    text: String,
    left: usize,
    blanks: usize,
}

impl OutputLine {
    /// An empty line, for so many columns of the terminal.
    pub(super) fn new(width: usize) -> Self {
        Self { text: String::new(), left: width, blanks: 0 }
    }

    /// Moves on by so many blanks.
    pub(super) fn skip(&mut self, blanks: usize) {
        self.blanks = self.blanks.saturating_add(blanks);
    }

    /// Adds a text, or as much as there is room for and an ellipsis; says whether all of it went in.
    pub(super) fn push(&mut self, text: &str, style: Style) -> bool {
        if text.is_empty() {
            return true;
        }
        if self.left == 0 {
            return false;
        }
        // Where not even the blanks fit, the ellipsis stands in the last place.
        let is_whole = self.blanks.saturating_add(width(text)) <= self.left;
        self.blanks = self.blanks.min(self.left - 1);
        let shown = match shortened(text, self.left - self.blanks) {
            Cow::Borrowed(_) if !is_whole => Cow::Borrowed("…"),
            shown => shown,
        };
        self.left = self.left.saturating_sub(self.blanks + width(&shown));
        // A width in a format string is 16 bits wide at most, and panics beyond.
        self.text.push_str(&" ".repeat(self.blanks));
        self.blanks = 0;
        let _ = write!(self.text, "{style}{shown}{style:#}");
        is_whole
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
