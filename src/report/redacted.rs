//! Redaction of a period, for a report that is handed to others.

use std::sync::Arc;

use crate::history::timeline::Period;
use crate::redact::without_queries;

/// Returns the period as `--redact-commands` would have recorded it: with only the program of each
/// command, without output and status messages, and without query strings of URLs.
#[must_use]
pub fn redacted(mut period: Period) -> Period {
    for probe in &mut period.probes {
        let series = &mut probe.series;
        series.command.truncate(1);
        series.handler = match series.command.first() {
            Some(program) => program.clone(),
            None => without_queries(&series.handler).into_owned(),
        };
    }
    for record in &mut period.calls {
        *record = Arc::new(Arc::unwrap_or_clone(record.clone()).redacted());
    }
    for event in &mut period.events {
        event.message = without_queries(&event.message).into_owned();
    }
    period
}
