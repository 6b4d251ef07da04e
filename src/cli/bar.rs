//! Bars of block characters that show parts of a whole.

use anstyle::{AnsiColor, Style};

/// Eighths of a character, one of which ends a bar.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Returns the part of a bar that begins at `started` and is `length` long, indented to its start.
/// The whole bar is `width` characters wide and stands for `total`. A part of any positive length
/// is visible.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "columns of a terminal"
)]
pub(super) fn part(started: f64, length: f64, total: f64, width: usize) -> String {
    if length <= 0.0 || total <= 0.0 {
        return String::new();
    }
    let scale = width as f64 / total;
    let blanks = ((started * scale) as usize).min(width.saturating_sub(1));
    let eighths = ((length * scale * 8.0).round() as usize).clamp(1, (width - blanks).max(1) * 8);
    format!("{}{}{}", " ".repeat(blanks), "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Returns the colour of an ExecSync phase.
pub(super) fn style(phase: &str) -> Style {
    let colour = match phase {
        "queue" => AnsiColor::Magenta,
        "prepare" => AnsiColor::Blue,
        "start" => AnsiColor::Cyan,
        "run" => AnsiColor::Green,
        "drain" => AnsiColor::Yellow,
        _ => return Style::new(),
    };
    colour.on_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_bar_start_at_their_offset_and_are_as_long_as_their_duration() {
        assert_eq!(part(0.0, 50.0, 100.0, 10), "█████");
        assert_eq!(part(50.0, 50.0, 100.0, 10), "     █████");
        assert_eq!(part(90.0, 5.0, 100.0, 10), "         ▌");
        assert_eq!(part(100.0, 0.01, 100.0, 10), "         ▏", "any positive duration is visible");
        assert_eq!(part(0.0, 0.0, 100.0, 10), "");
        assert_eq!(part(0.0, 0.0, 0.0, 10), "");
    }
}
