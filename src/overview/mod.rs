//! Rows of the probes of a node, as `top` and the web page show them: the numbers of a period, the
//! strip of results over time, and the last result.

mod live;
mod probe_key;
mod row;
mod row_result;
mod strip;

pub(crate) use live::{LastResults, result_of};
pub use probe_key::ProbeKey;
pub(crate) use row::{CurrentPods, ProbeRow, rows};
pub(crate) use row_result::RowResult;
pub(crate) use strip::StripMark;
