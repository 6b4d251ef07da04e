//! What the program tells of itself while it runs: logs, and traces over OTLP. Neither is ever a reason for it to wait.

mod log;
mod log_queue;
pub mod traces;

pub use log::{FilterError, LEVELS, LogConfig, start};
pub use log_queue::LogGuard;
