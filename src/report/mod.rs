//! Report about the probes of a period: what is wrong, results over time, restarts, latencies, the
//! slowest calls, and the node. A report is a value, which becomes JSON or a self-contained page.

mod attempt_counts;
mod axis;
mod build;
mod call;
mod html;
mod latency;
mod lifecycle;
mod model;
mod pods;
mod probe;
mod redacted;
mod selection;
mod serialize;
mod spans;
#[cfg(test)]
mod tests;
mod totals;

pub use attempt_counts::{AttemptCounts, LatencyPercentiles};
pub use axis::Axis;
pub use build::{ReportInput, report};
pub use call::SlowCall;
pub use html::html;
pub use latency::{LatencyMap, LatencyRow, LatencySummary};
pub(crate) use lifecycle::StoppedContainers;
pub use lifecycle::{LifecycleEvent, LifecycleKind};
pub use model::{Gap, Report};
pub use pods::PodReport;
pub use probe::{CauseCount, MeanPhases, ProbeReport};
pub use redacted::redacted;
pub use selection::Selection;
pub use spans::{ResultKind, ResultSpan};
pub use totals::Totals;
