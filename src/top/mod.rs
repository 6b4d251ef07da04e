//! `probeshim top`: the probes of the node in a terminal, as they change.
//!
//! [`TopApp`] is a state machine without input and output: [`TopApp::update`] takes an event and
//! returns an effect, and [`draw()`] draws the state. [`run()`] connects both to a terminal and a
//! running probeshim.

mod app;
mod column;
mod detail;
mod dialog;
mod draw;
mod event;
mod filter;
mod run;
mod source;
mod symbols;
mod terminal_guard;
#[cfg(test)]
mod tests;

pub use app::TopApp;
pub use draw::draw;
pub use event::{InspectRequest, Inspected, PeriodReport, TopEffect, TopEvent};
pub(crate) use run::check_terminal;
pub use run::{TopError, run};
pub use symbols::TopScreen;
