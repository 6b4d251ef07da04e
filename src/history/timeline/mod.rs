//! Results of probes over time: one row for each probe and minute.
//!
//! A day of calls is too large to be kept. The rows of a day of 200 probes take a few megabytes, and
//! have what the lints and the report need: results, latencies, phases, causes, and ids of calls.

mod batch;
mod clock_check;
mod directory;
mod durations;
mod event_log;
mod line;
mod line_redactor;
mod minute;
mod node_facts;
mod open_rows;
mod period;
mod period_builder;
mod reader;
mod recorder;
mod ring;
mod row;
mod runs;
mod series;

pub use batch::{LineEncoder, TimelineBatch};
pub use directory::{read_lines, read_period};
pub use durations::Durations;
pub use line::{Irregularity, Line, SeriesLine};
pub use line_redactor::LineRedactor;
pub use minute::{CallSample, Minute, PhaseSums};
pub use node_facts::NodeFacts;
pub use period::{Gap, GapCause, Period, ProbeHistory};
pub use period_builder::PeriodBuilder;
pub use reader::TimelineReader;
pub use recorder::{RecordedLines, Timeline, TimelineSources};
pub use row::Row;
pub use series::{ProbeSeries, Prober};

#[cfg(test)]
mod tests;
