//! Dialogs.

use jiff::Timestamp;
use ratatui::style::{Color, Style};
use ratatui::text::Span;

use super::page::Page;
use crate::terminal::format::time_until;
use crate::top::dialog::Dialog;
use crate::top::symbols::TopScreen;

/// Draws a dialog.
pub(super) fn dialog(page: &mut Page, dialog: &Dialog) {
    match dialog {
        Dialog::PauseDuration { selector, text, error } => {
            page.text(&format!("Pause the exec probes of {selector}"), Style::new());
            let text = page.screen.harmless(text);
            page.line(vec![TopScreen::bold("for: "), Span::raw(text), Span::raw("_")]);
            match error {
                Some(error) => page.text(&format!("the duration {error}"), page.screen.style(Color::Red)),
                None => page.text("Enter continues. Readiness probes are not paused.", Style::new()),
            }
        }
        Dialog::ConfirmPause { body, duration } => {
            page.text(&format!("Pause the exec probes of {} for {duration}?", body.selector), Style::new());
            page.text(
                "Liveness probes are answered with success, and startup probes are discarded. probeshim kills none \
                 of these containers meanwhile.",
                Style::new(),
            );
            page.line(vec![
                TopScreen::bold("y"),
                Span::raw(" pauses, "),
                TopScreen::bold("n"),
                Span::raw(" cancels"),
            ]);
        }
        Dialog::ConfirmResume { pauses, chosen } => {
            page.text("End this pause? Its probes are executed again.", Style::new());
            let now = Timestamp::now();
            for (place, pause) in pauses.iter().enumerate() {
                let marker = if place == *chosen { ">" } else { " " };
                let left = time_until(&pause.expires, now);
                let line = format!("{marker} {} of {}, {left} left", pause.name, pause.selector);
                page.line(vec![Span::raw(page.screen.harmless(&line))]);
            }
            page.line(vec![
                TopScreen::bold("y"),
                Span::raw(" ends it, "),
                TopScreen::bold("n"),
                Span::raw(" cancels"),
            ]);
        }
    }
}
