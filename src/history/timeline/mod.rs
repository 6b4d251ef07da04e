//! Results of probes over time: one row for each probe and minute.
//!
//! A day of calls is too large to be kept. The rows of a day of 200 probes take a few megabytes, and
//! have what the lints and the report need: results, latencies, phases, causes, and ids of calls.

mod directory;
mod durations;
mod minute;
mod node_facts;
mod period;
mod period_builder;
mod series;

pub use directory::read_period;
pub use durations::Durations;
pub use minute::{CallSample, Minute, PhaseSums};
pub use node_facts::NodeFacts;
pub use period::{Gap, GapCause, Period, ProbeHistory};
pub use period_builder::PeriodBuilder;
pub use series::{ProbeSeries, Prober};
