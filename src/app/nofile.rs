//! The limit of open files of this process.

use std::io;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Number of open files for which the kernel's table has room from the start, in a quarter of a
/// MiB: more than ten thousand connections.
const ROOM: u64 = 1 << 15;

/// Raises the soft limit of open files to the hard limit. A client of the relay takes two files, a
/// container of procrun five and an exec two more; the soft limit is 1,024 on most systems.
///
/// Makes room in the table of open files. The kernel doubles a full table, and lets all threads
/// that open a file wait for tens of milliseconds meanwhile (`fs/file.c`: `expand_fdtable`).
pub(super) fn raise_nofile_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, soft = limit.current, "cannot raise the limit of open files");
        }
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(ROOM);
    let last = i32::try_from(ROOM.min(limit).saturating_sub(1)).unwrap_or_default();
    // The table keeps its size when the file is closed. Without the room, only storms are slower.
    let _ = fcntl_dupfd_cloexec(io::stderr(), last);
}
