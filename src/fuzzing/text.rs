//! Properties of texts for people.

use crate::terminal::is_printable;

/// Asserts that a text moves no cursor, and changes neither colours nor the direction of writing,
/// apart from the ends of its lines.
pub(super) fn assert_harmless(text: &str) {
    let harmful = text.chars().find(|char| *char != '\n' && !is_printable(*char));
    assert_eq!(harmful, None, "in {text:?}");
}
