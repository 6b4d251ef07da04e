//! The processes of this machine.

use procfs::process::{Stat, all_processes};

/// What the kernel says of each of them, the dead that nobody has reaped included.
pub(super) fn all() -> impl Iterator<Item = Stat> {
    all_processes().into_iter().flatten().filter_map(|process| process.ok()?.stat().ok())
}
