//! Redaction of a period, for a report that is handed to others.

use std::collections::HashMap;
use std::sync::Arc;

use crate::execsync::CallRecord;
use crate::history::timeline::{Period, ProbeHistory, ProbeSeries, redacted_message};

/// Returns the period as `--redact-commands` would have recorded it: with only the program of each
/// command, without output and status messages, without what follows the first colon of an event's
/// message, and without query strings of URLs. Commands of no known probe that differ only in their
/// arguments have one history.
#[must_use]
pub fn redacted(mut period: Period) -> Period {
    let mut probes: Vec<ProbeHistory> = Vec::with_capacity(period.probes.len());
    let mut index: HashMap<ProbeSeries, usize> = HashMap::new();
    for probe in period.probes {
        let series = probe.series.redacted();
        let key = ProbeSeries { probe: String::new(), period: None, ..series.clone() };
        let known = series.learned().map(|_| *index.entry(key).or_insert(probes.len()));
        match known.and_then(|place| probes.get_mut(place)) {
            Some(known) => known.merge(series, probe.minutes),
            None => probes.push(ProbeHistory { series, minutes: probe.minutes }),
        }
    }
    period.probes = probes;
    for record in &mut period.calls {
        *record = Arc::new(CallRecord::clone(record).redacted());
    }
    for event in &mut period.events {
        event.message = redacted_message(&event.message);
    }
    period
}
