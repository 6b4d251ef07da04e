//! The last calls and events, in memory and on disk, and how they are written as JSON.

mod calls;
mod events;
mod filter;
mod happened;
pub mod journal;
pub mod json;
mod mem_size;

pub use calls::{CallHistory, Counts, Limits};
pub use events::{Event, EventFilter, EventHistory, EventType};
pub use filter::{Filter, Selection};
pub use journal::Journal;
