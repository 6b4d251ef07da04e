//! The probe of the detail pane, and its calls.

use super::event::{InspectRequest, Inspected};
use crate::admin::api::{Call, CallsQuery, Explanation};
use crate::overview::{ProbeKey, ProbeRow};
use crate::report::Report;

/// Number of calls of the probe that are shown.
const CALLS: usize = 20;

/// The probe of the detail pane.
#[derive(Clone, Debug)]
pub(super) struct ProbeDetail {
    pub(super) key: ProbeKey,
    /// The slowest call, or a failed one, in sentences.
    pub(super) explanation: Option<Explanation>,
    /// The last calls, the oldest first.
    pub(super) calls: Vec<Call>,
    /// Whether the calls were received.
    pub(super) loaded: bool,
    /// Number of lines above the first visible one.
    pub(super) scroll: usize,
}

impl ProbeDetail {
    pub(super) fn new(key: ProbeKey) -> Self {
        Self { key, explanation: None, calls: Vec::new(), loaded: false, scroll: 0 }
    }

    /// Returns the request for the calls of the probe.
    pub(super) fn request(&self, rows: &[ProbeRow], report: Option<&Report>) -> InspectRequest {
        let row = rows.iter().find(|row| row.key == self.key);
        let probe = row.and_then(|row| report?.probes.get(row.index?));
        let results = probe.map(|probe| &probe.results);
        let slowest = results.and_then(|results| results.slowest.map(|slowest| slowest.id));
        let failed = results.and_then(|results| results.failed_calls.last().copied());
        let calls = CallsQuery { last: Some(CALLS), ..self.key.calls_query() };
        InspectRequest { key: self.key.clone(), explain: slowest.or(failed), calls }
    }

    /// Takes the calls that were received, unless they are those of another probe.
    pub(super) fn on_inspected(&mut self, inspected: Inspected) {
        let Inspected { key, explanation, calls } = inspected;
        if key == self.key {
            (self.explanation, self.calls, self.loaded) = (explanation, calls, true);
        }
    }

    /// Adds a call that has just ended, if it is one of the probe.
    pub(super) fn on_call(&mut self, call: &Call) {
        let is_known = self.calls.iter().any(|known| known.id == call.id);
        if !is_known && ProbeKey::from_call(call).as_ref() == Some(&self.key) {
            self.calls.push(call.clone());
            let superfluous = self.calls.len().saturating_sub(CALLS);
            self.calls.drain(..superfluous);
        }
    }
}
