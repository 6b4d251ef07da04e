//! Progress of pods, as `play` and `demo` print it: events as they happen, a table at the end, and
//! the reasons of containers that are not ready.

mod event_lines;
mod output;
mod ready_pods;
mod repetitions;
mod summary;
mod unready;

pub use output::{Progress, ProgressFormat};
pub use summary::{demo_outcome, pod_table};
pub use unready::{LOG_LINES, PULL_FAILED, UnreadyContainer, render_unready, unready_containers};
