//! Logs, and traces over OTLP. Writing logs and exporting traces never blocks the program.

mod log;
mod log_queue;
pub mod traces;

pub use log::{FilterError, LEVELS, LogConfig, start};
pub use log_queue::LogGuard;
pub(crate) use log_queue::{LineWriter, start as start_lines};
