//! Results, calls, events and gaps of the probes of a node in a period.

use std::sync::Arc;
use std::time::SystemTime;

use super::minute::Minute;
use super::node_facts::NodeFacts;
use super::series::ProbeSeries;
use crate::execsync::CallRecord;
use crate::history::json;

/// Results, calls, events and gaps of the probes of a node in a period: the input of the lints and
/// of the report.
#[derive(Clone, Debug)]
pub struct Period {
    /// Beginning of the period.
    pub from: SystemTime,
    /// End of the period.
    pub to: SystemTime,
    /// Number of minutes that are merged into each row.
    pub resolution: u64,
    /// The node and the last probeshim that ran in the period, if they are known.
    pub node: Option<NodeFacts>,
    /// The probes, by pod, container and type.
    pub probes: Vec<ProbeHistory>,
    /// Calls that are kept completely: slow and failed ones, and the slowest. In the order of their
    /// starts.
    pub calls: Vec<Arc<CallRecord>>,
    /// Events, the oldest first. An event that has occurred several times is there once.
    pub events: Vec<json::Event>,
    /// Times of which nothing, or not everything, is known, in order.
    pub gaps: Vec<Gap>,
}

/// The results of a probe.
#[derive(Clone, Debug)]
pub struct ProbeHistory {
    /// The probe.
    pub series: ProbeSeries,
    /// Its results in order of time. A minute without an attempt has no row.
    pub minutes: Vec<Minute>,
}

/// A time of which nothing, or not everything, is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// Beginning of the gap.
    pub from: SystemTime,
    /// End of the gap.
    pub to: SystemTime,
    /// Cause of the gap.
    pub cause: GapCause,
}

/// Cause of a gap.
#[derive(Clone, Debug, PartialEq)]
pub enum GapCause {
    /// probeshim did not run.
    NotRunning,
    /// There are no records: they begin later, were removed at the size limit, or end earlier.
    NotRecorded,
    /// Observations were dropped.
    Dropped(u64),
    /// The clock was set forward or back by this time, in seconds. The gap is as long as the step
    /// if it was forward, and empty otherwise.
    ClockStep(f64),
}

impl ProbeHistory {
    /// Adds the results of another series of the same probe. An inferred series takes the place of
    /// one that is not.
    pub fn merge(&mut self, series: ProbeSeries, minutes: Vec<Minute>) {
        if series.period.is_some() {
            self.series = series;
        }
        for minute in minutes {
            match self.minutes.binary_search_by_key(&minute.minute, |known| known.minute) {
                Ok(place) => self.minutes[place].merge(&minute),
                Err(place) => self.minutes.insert(place, minute),
            }
        }
    }

    /// Returns all results together.
    #[must_use]
    pub fn total(&self) -> Minute {
        let mut total = Minute::default();
        self.minutes.iter().for_each(|minute| total.merge(minute));
        total
    }
}

impl Period {
    /// Returns the call with an id, if it is kept.
    #[must_use]
    pub fn call(&self, id: u64) -> Option<&Arc<CallRecord>> {
        self.calls.iter().find(|record| record.call.id == id)
    }
}
