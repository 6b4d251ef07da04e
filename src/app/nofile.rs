//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit of open files to the hard limit. A client of the relay takes two files, a
/// container of procrun five and an exec two more; the soft limit is 1,024 on most systems.
pub(super) fn raise_nofile_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, soft = limit.current, "cannot raise the limit of open files");
        }
    }
}
