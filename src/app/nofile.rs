//! The limits that the system sets to this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the limit of open files to what may be had. A client of the relay takes two, a container of procrun five, an exec two more, and
/// the soft limit is 1,024 on most systems.
pub(super) fn raise_nofile_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, soft = limit.current, "cannot raise the limit of open files");
        }
    }
}
