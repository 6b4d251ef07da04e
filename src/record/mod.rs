//! What was seen, for as long as memory is set aside for it.

mod calls;

pub use calls::{Calls, Counts, Filter, Limits, Selection};
