//! Durations in texts.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a duration that is not negative, such as `1m30s` or `500ms`. A number without a unit is
/// in seconds.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let signed = || Duration::try_from(text.parse::<SignedDuration>().ok()?).ok();
    seconds(text).or_else(signed)
}

/// Parses a number of seconds without a unit, such as `30` or `0.5`.
fn seconds(text: &str) -> Option<Duration> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_number.then(|| Duration::try_from_secs_f64(text.parse().ok()?).ok()).flatten()
}
