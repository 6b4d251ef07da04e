//! Characters, texts and styles for the terminal: with or without UTF-8, with or without colours.

use std::borrow::Cow;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use crate::lint::Severity;
use crate::overview::StripMark;
use crate::report::ResultKind;
use crate::terminal::screen::Screen;
use crate::terminal::{sanitize, shortened, width};

/// Maximum number of characters of a foreign text that are examined.
const MAX_TEXT: usize = 4096;

/// Number of columns of the end of a name that is shortened in its middle.
const TAIL: usize = 6;

/// Properties of the terminal that decide about characters and colours.
#[derive(Clone, Copy, Debug)]
pub struct TopScreen(Screen);

impl TopScreen {
    /// Creates the properties of a terminal.
    #[must_use]
    pub fn new(colour: bool, utf8: bool) -> Self {
        Self(Screen { width: None, colour, utf8 })
    }

    /// Returns the properties of a terminal without colours.
    #[cfg(test)]
    pub(super) const fn plain(utf8: bool) -> Self {
        Self(Screen { width: None, colour: false, utf8 })
    }

    /// Returns the properties of standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self(Screen::stdout())
    }

    /// Returns a text of another author, harmless for the terminal.
    pub(super) fn harmless(self, text: &str) -> String {
        self.0.encode(&sanitize(&shortened(text, MAX_TEXT))).into_owned()
    }

    /// Returns a harmless text of exactly this number of columns, aligned to the left or the right.
    pub(super) fn fit(self, text: &str, columns: usize, is_right: bool) -> String {
        let text = self.harmless(text);
        let shown = self.0.shortened(&text, columns);
        let blanks = " ".repeat(columns.saturating_sub(width(&shown)));
        if is_right { blanks + &shown } else { shown.into_owned() + &blanks }
    }

    /// Returns a harmless name of exactly this number of columns. The ends of names of pods
    /// distinguish them, so a long one is shortened in its middle.
    pub(super) fn fit_name(self, name: &str, columns: usize) -> String {
        let name = self.harmless(name);
        let tail = name.len().saturating_sub(TAIL);
        match name.get(tail..) {
            Some(tail) if tail.is_ascii() && width(&name) > columns && columns >= 2 * TAIL => {
                let head = self.0.shortened(&name, columns - TAIL).into_owned();
                self.fit(&(head + tail), columns, false)
            }
            _ => self.fit(&name, columns, false),
        }
    }

    /// Returns a text of `top` in the characters that the terminal has.
    pub(super) fn encode(self, text: &str) -> Cow<'_, str> {
        match self.0.encode(text) {
            Cow::Borrowed(_) => Cow::Owned(text.to_owned()),
            Cow::Owned(encoded) => Cow::Owned(encoded),
        }
    }

    /// Returns a span in a colour, if the terminal has colours.
    pub(super) fn coloured(self, text: impl Into<Cow<'static, str>>, colour: Color) -> Span<'static> {
        Span::styled(text, self.style(colour))
    }

    pub(super) fn style(self, colour: Color) -> Style {
        if self.0.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn bold(text: impl Into<Cow<'static, str>>) -> Span<'static> {
        Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
    }

    /// Returns the character and the style of a mark of a strip. Each mark has a character of its
    /// own, because colours may be absent.
    pub(super) fn mark(self, mark: StripMark) -> (char, Style) {
        let or = |utf8: char, ascii: char| if self.0.utf8 { utf8 } else { ascii };
        let (character, colour) = match mark {
            StripMark::Empty => (' ', Color::Reset),
            StripMark::Gap => (or('░', ':'), Color::DarkGray),
            StripMark::Killed => ('K', Color::Magenta),
            StripMark::WouldBeKilled => ('k', Color::Magenta),
            StripMark::Result(result) => match result {
                ResultKind::Success => (or('▁', '_'), Color::Green),
                ResultKind::Slow => (or('▄', '='), Color::Yellow),
                ResultKind::Late => ('L', Color::Yellow),
                ResultKind::NotSent => ('p', Color::Blue),
                ResultKind::NoResult => ('?', Color::DarkGray),
                ResultKind::Error => ('E', Color::Yellow),
                ResultKind::Failure => ('F', Color::Red),
                ResultKind::Timeout => ('T', Color::Red),
            },
        };
        (character, self.style(colour))
    }

    /// Returns the spans of the last columns of a strip, as many as fit.
    pub(super) fn strip(self, marks: &[StripMark], columns: usize) -> Vec<Span<'static>> {
        let marks = &marks[marks.len().saturating_sub(columns)..];
        let blanks = columns - marks.len();
        let mut spans = vec![Span::raw(" ".repeat(blanks))];
        for group in marks.chunk_by(|one, other| one == other) {
            let (character, style) = self.mark(group[0]);
            spans.push(Span::styled(character.to_string().repeat(group.len()), style));
        }
        spans
    }

    /// Returns the bar of one of several parts in a row: it begins at `start` and has `length` of
    /// `total`.
    pub(super) fn bar(self, start: f64, length: f64, total: f64, columns: usize) -> String {
        let scale = f64::from(u32::try_from(columns).unwrap_or(u32::MAX)) / total.max(f64::MIN_POSITIVE);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "columns of a terminal")]
        let column = |time: f64| (time * scale).round().max(0.0) as usize;
        let first = column(start).min(columns.saturating_sub(1));
        // A part of any length is visible.
        let end = column(start + length).clamp(first + 1, columns.max(first + 1));
        let block = if self.0.utf8 { "█" } else { "#" };
        " ".repeat(first) + &block.repeat(end - first)
    }

    /// Returns the colour of a phase of an ExecSync, as in `probeshim explain`.
    pub(super) fn phase_style(self, phase: &str) -> Style {
        self.style(match phase {
            "queue" => Color::Magenta,
            "prepare" => Color::Blue,
            "start" => Color::Cyan,
            "run" => Color::Green,
            "drain" => Color::Yellow,
            _ => Color::Reset,
        })
    }

    pub(super) fn severity_style(self, severity: Severity) -> Style {
        self.style(match severity {
            Severity::Error => Color::Red,
            Severity::Warning => Color::Yellow,
            Severity::Info => Color::Cyan,
        })
    }
}
