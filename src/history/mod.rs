//! The most recent calls, in memory and on disk, and the JSON of calls and events.

mod calls;
mod filter;
mod filter_values;
pub mod journal;
pub mod json;
mod mem_size;
mod name_coverage;
pub mod recorder;
mod time_arg;
pub mod timeline;

pub use calls::{CallHistory, Counts, Limits};
pub use filter::{Filter, Selection};
pub use filter_values::{CodeLabel, FilterValueError, MethodArg, ProbeLabel};
pub use journal::Journal;
pub use name_coverage::NameCoverage;
pub use time_arg::{TimeArg, TimeArgError};
