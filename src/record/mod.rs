//! What was seen, for as long as memory is set aside for it.

mod calls;
mod events;
mod filter;
mod happened;
pub mod journal;
pub mod shape;
mod weight;

pub use calls::{Calls, Counts, Limits};
pub use events::{Event, EventFilter, Events, Severity};
pub use filter::{Filter, Selection};
pub use journal::Journal;
