//! A line of a table, at most as wide as the terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::Style;

use crate::terminal::screen::Screen;
use crate::terminal::width;

/// A line that grows until it is full. Blanks are added only when text follows them.
pub(super) struct OutputLine {
    text: String,
    screen: Screen,
    left: usize,
    blanks: usize,
}

impl OutputLine {
    /// Returns an empty line for the width of a screen.
    pub(super) fn new(screen: Screen) -> Self {
        Self { text: String::new(), screen, left: screen.width.unwrap_or(usize::MAX), blanks: 0 }
    }

    /// Adds this number of blanks before the next text.
    pub(super) fn skip(&mut self, blanks: usize) {
        self.blanks = self.blanks.saturating_add(blanks);
    }

    /// Adds a text, or the part of it that fits and an ellipsis. Returns whether the whole text
    /// fitted.
    pub(super) fn push(&mut self, text: &str, style: Style) -> bool {
        if text.is_empty() {
            return true;
        }
        if self.left == 0 {
            return false;
        }
        // If not even the blanks fit, the ellipsis takes the last column.
        let is_whole = self.blanks.saturating_add(width(text)) <= self.left;
        self.blanks = self.blanks.min(self.left - 1);
        let shown = match self.screen.shortened(text, self.left - self.blanks) {
            Cow::Borrowed(_) if !is_whole => Cow::Borrowed(self.screen.ellipsis(self.left - self.blanks)),
            shown => shown,
        };
        self.left = self.left.saturating_sub(self.blanks + width(&shown));
        // `repeat` and not a width in the format string: such a width has at most 16 bits, and a
        // larger one panics.
        self.text.push_str(&" ".repeat(self.blanks));
        self.blanks = 0;
        let _ = write!(self.text, "{style}{shown}{style:#}");
        is_whole
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
