//! Values of the JSON: times, durations and names.

use std::time::{Duration, SystemTime};

use serde::Serializer;

use crate::history::json;

/// Writes a time in RFC 3339.
pub(super) fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&json::time(*time))
}

/// Writes a name; null if it is empty.
pub(super) fn name<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    if name.is_empty() { serializer.serialize_none() } else { serializer.serialize_str(name) }
}

/// Writes a duration in milliseconds.
pub(super) fn milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(json::milliseconds(*duration))
}

/// Writes a duration in milliseconds, or null.
#[expect(clippy::ref_option, reason = "serde passes a reference")]
pub(super) fn optional_milliseconds<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => milliseconds(duration, serializer),
        None => serializer.serialize_none(),
    }
}
