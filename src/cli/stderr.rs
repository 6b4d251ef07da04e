//! Lines for the person at the terminal that are not the output of a command.

use crate::terminal::harmless_text;

/// Prints a line to standard error.
#[expect(clippy::print_stderr, reason = "for the person at the terminal, not for the log")]
pub(super) fn note(line: &str) {
    eprintln!("{}", harmless_text(line));
}
