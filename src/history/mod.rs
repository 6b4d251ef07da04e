//! The last calls and events, in memory and on disk, and how they are written as JSON.

mod calls;
mod filter;
pub mod journal;
pub mod json;
mod mem_size;

pub use calls::{CallHistory, Counts, Limits};
pub use filter::{Filter, Selection};
pub use journal::Journal;
