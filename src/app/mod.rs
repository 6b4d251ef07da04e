//! The composition root: builds the parts, joins them, and drains them in order.

mod run;
mod runtime;
mod signals;

pub use run::{RunError, run};
pub use runtime::{RuntimeError, runtime};
