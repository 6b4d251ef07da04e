//! Times and numbers on the page.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use super::page::Page;
use crate::report::axis::Axis;

/// Maximum number of times below a strip.
const MAX_TICKS: usize = 8;

/// Steps between the times below a strip, in minutes.
const STEPS: [u64; 14] = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080];

/// Formats a time with its date, in UTC.
pub(super) fn date_time(time: SystemTime) -> String {
    formatted(time, "%F %H:%M")
}

/// Formats a time with its date, in UTC and to the second.
pub(super) fn exact_time(time: SystemTime) -> String {
    formatted(time, "%F %H:%M:%S")
}

/// Formats the beginning and the end of a time span, in UTC. The date is written once if it is the
/// same.
pub(super) fn span(from: SystemTime, to: SystemTime) -> String {
    let is_same_day = formatted(from, "%F") == formatted(to, "%F");
    let end = if is_same_day { formatted(to, "%H:%M") } else { date_time(to) };
    format!("{} – {end}", date_time(from))
}

/// Formats a number with a comma before each group of three digits.
pub(super) fn number(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a number with its noun in singular or plural.
pub(super) fn counted(count: impl Into<u64>, singular: &str, plural: &str) -> String {
    let count = count.into();
    format!("{} {}", number(count), if count == 1 { singular } else { plural })
}

/// Times below a strip.
#[derive(Debug)]
pub(super) struct Ticks(Vec<(f64, String)>);

impl Ticks {
    /// Returns the times below an axis, at whole hours or minutes.
    pub(super) fn of_axis(axis: &Axis) -> Self {
        let end = axis.start_of(axis.columns);
        let minutes = end.duration_since(axis.start).unwrap_or_default().as_secs().div_ceil(60);
        let step = STEPS.into_iter().find(|step| minutes.div_ceil(*step) <= MAX_TICKS as u64);
        let step = 60 * step.unwrap_or_else(|| minutes.div_ceil(MAX_TICKS as u64));
        let format = if step >= 60 * 1440 { "%b %-d" } else { "%H:%M" };
        let start = axis.start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let times = (start.div_ceil(step)..)
            .map(|tick| UNIX_EPOCH + Duration::from_secs(tick * step))
            .take_while(|time| *time < end);
        Self(times.map(|time| (axis.share(time), formatted(time, format))).collect())
    }

    /// Returns the shares of the times on the axis, from 0 to 1.
    pub(super) fn shares(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|(share, _)| *share)
    }

    /// Writes the times below a strip. Screen readers skip them, because a strip has a text.
    pub(super) fn write(&self, page: &mut Page) {
        page.markup(r#"<div class="axis" aria-hidden="true">"#)
            .each(&self.0, |page, (share, label)| {
                // A time near the right edge is written to the left of its tick.
                let class =
                    if *share > 0.93 { r#"<i class="last" style="left:"# } else { r#"<i style="left:"# };
                page.markup(class)
                    .text(format_args!("{:.1}", share * 100.0))
                    .markup(r#"%">"#)
                    .text(label)
                    .markup("</i>");
            })
            .markup("</div>\n");
    }
}

fn formatted(time: SystemTime, format: &str) -> String {
    Timestamp::try_from(time).map_or_else(|_| "unknown".to_owned(), |time| time.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        for (given, shown) in [(0_u64, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(number(given), shown);
        }
        assert_eq!(counted(1_u32, "kill", "kills"), "1 kill");
    }

    #[test]
    fn the_times_below_a_day_are_three_hours_apart() {
        let day = Axis { start: UNIX_EPOCH, width: Duration::from_secs(300), columns: 288 };
        let labels: Vec<String> = Ticks::of_axis(&day).0.into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["00:00", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]);
    }
}
