//! The composition root: builds the parts, joins them, and drains them in order.

mod demo;
mod keeping;
mod limits;
mod observatory;
mod play;
mod playing;
mod probing;
mod run;
mod runtime;
mod shim;
mod signals;

pub use demo::{DemoError, demo};
pub use play::{PlayError, play};
pub use run::run;
pub use runtime::{RuntimeError, runtime};
pub use shim::RunError;
