//! Lines of a pane that can be longer than the terminal is high.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::terminal::format::wrapped;
use crate::top::symbols::TopScreen;

/// Lines of a pane.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) screen: TopScreen,
    pub(super) columns: usize,
    lines: Vec<Line<'static>>,
}

impl Page {
    pub(super) fn new(screen: TopScreen, columns: usize) -> Self {
        Self { screen, columns, lines: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Adds a line that is cut at the width of the terminal.
    pub(super) fn line(&mut self, spans: Vec<Span<'static>>) {
        self.lines.push(Line::from(spans));
    }

    /// Adds a heading after an empty line, unless it is the first.
    pub(super) fn heading(&mut self, text: &str) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        let text = self.screen.harmless(text);
        self.line(vec![Span::styled(text, Style::new().add_modifier(Modifier::BOLD))]);
    }

    /// Adds a text, harmless and wrapped.
    pub(super) fn text(&mut self, text: &str, style: Style) {
        let text = wrapped(&self.screen.harmless(text), self.columns);
        self.lines.extend(text.lines().map(|line| Line::styled(line.to_owned(), style)));
    }

    /// Returns the lines that are visible if this number of lines is above them, at most as many as
    /// there are rows. The last line stays visible.
    pub(super) fn visible(self, first: usize, rows: usize) -> Vec<Line<'static>> {
        let first = first.min(self.lines.len().saturating_sub(rows));
        self.lines.into_iter().skip(first).take(rows).collect()
    }
}
