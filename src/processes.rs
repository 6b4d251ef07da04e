//! Processes of this machine.

use procfs::process::{Stat, all_processes};

/// Returns the kernel's status of each process, zombies included.
pub(crate) fn all() -> impl Iterator<Item = Stat> {
    all_processes().into_iter().flatten().filter_map(|process| process.ok()?.stat().ok())
}
