//! Redaction of a period, for a report that is handed to others.

use std::sync::Arc;

use crate::execsync::CallRecord;
use crate::history::timeline::{Period, redacted_message};

/// Returns the period as `--redact-commands` would have recorded it: with only the program of each
/// command, without output and status messages, without what follows the first colon of an event's
/// message, and without query strings of URLs.
#[must_use]
pub fn redacted(mut period: Period) -> Period {
    for probe in &mut period.probes {
        probe.series = probe.series.clone().redacted();
    }
    for record in &mut period.calls {
        *record = Arc::new(CallRecord::clone(record).redacted());
    }
    for event in &mut period.events {
        event.message = redacted_message(&event.message);
    }
    period
}
