//! The composition root: creates the parts, connects them, and drains them in order.

mod demo;
mod embedded_runtime;
mod error;
mod fault_relay;
mod handover;
mod image_hint;
mod kubelet;
mod listeners;
mod node_facts;
mod nofile;
mod play;
mod play_goal;
mod policies;
mod prober_thread;
mod run;
mod runtime;
mod runtime_check;
mod server;
mod servers;
mod service_manager;
mod shared;
mod signals;
mod spec_updates;
mod store;
mod test_command;

pub use demo::{DemoError, demo};
pub use embedded_runtime::EmbeddedRuntimeError;
pub use error::RunError;
pub use play::{PlayError, play};
pub use run::run;
pub use runtime::{RuntimeError, runtime};
