//! One line of a table, as wide as the terminal at most.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A line that grows until it is full. Blanks are held back until something follows them.
pub(super) struct Line {
    text: String,
    left: usize,
    blanks: usize,
}

impl Line {
    /// An empty line, for so many columns of the terminal.
    pub(super) fn new(width: usize) -> Self {
        Self { text: String::new(), left: width, blanks: 0 }
    }

    /// Moves on by so many blanks.
    pub(super) fn skip(&mut self, blanks: usize) {
        self.blanks += blanks;
    }

    /// Adds a text, or as much as there is room for and an ellipsis; says whether all of it went in.
    pub(super) fn push(&mut self, text: &str, style: Style) -> bool {
        if text.is_empty() {
            return true;
        }
        let needed = self.blanks + text.width();
        if self.left == 0 {
            return false;
        }
        // Where not even the blanks fit, the ellipsis stands in the last place.
        self.blanks = self.blanks.min(self.left - 1);
        let (shown, is_whole) = if needed <= self.left {
            (text.to_owned(), true)
        } else {
            (cut(text, self.left - self.blanks), false)
        };
        let width = shown.width();
        let blanks = self.blanks;
        let _ = write!(self.text, "{:blanks$}{style}{shown}{style:#}", "");
        self.left -= self.blanks + width;
        self.blanks = 0;
        is_whole
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// As much of a text as fits, with an ellipsis at its end.
fn cut(text: &str, width: usize) -> String {
    let mut left = width - 1;
    let mut shown = String::new();
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        shown.push(c);
    }
    shown.push('…');
    shown
}
