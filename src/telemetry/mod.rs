//! What the program tells of itself while it runs: logs, and traces over OTLP. Neither is ever a reason for it to wait.

mod log;
pub mod traces;

pub use log::{FilterError, LEVELS, LogConfig, LogGuard, start};
