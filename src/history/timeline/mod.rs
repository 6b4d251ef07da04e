//! Results of probes over time: one row for each probe and minute.
//!
//! A day of calls is too large to be kept. The rows of a day of 200 probes take about 20 MiB,
//! and have what the lints and the report need: results, latencies, phases, causes, and ids of
//! calls.

mod batch;
mod durations;
mod learned;
mod line;
mod minute;
mod node_facts;
mod period;
mod period_builder;
mod reader;
mod redaction;
mod row;
mod runs;
mod series;

pub use batch::{LineEncoder, SeriesMinute, TimelineBatch};
pub use durations::Durations;
pub use learned::LearnedExec;
pub(in crate::history) use line::unix_ms;
pub use line::{Irregularity, Line, SeriesLine};
pub use minute::{CallSample, Minute, PhaseSums};
pub use node_facts::NodeFacts;
pub use period::{Gap, GapCause, Period, ProbeHistory};
pub use period_builder::PeriodBuilder;
pub use reader::TimelineReader;
pub use redaction::redacted_message;
pub use row::ResultRow;
pub use series::{ProbeSeries, Prober};
