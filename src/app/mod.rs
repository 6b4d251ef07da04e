//! The composition root: creates the parts, connects them, and drains them in order.

mod demo;
mod error;
mod kubelet;
mod listeners;
mod nofile;
mod play;
mod prober_thread;
mod run;
mod runtime;
mod server;
mod signals;

pub use demo::{DemoError, demo};
pub use error::RunError;
pub use play::{PlayError, play};
pub use run::run;
pub use runtime::{RuntimeError, runtime};
