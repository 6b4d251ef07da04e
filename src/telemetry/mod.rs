//! Logs, and traces over OTLP. The program never waits for them.

mod log;
mod log_queue;
pub mod traces;

pub use log::{FilterError, LEVELS, LogConfig, start};
pub use log_queue::LogGuard;
