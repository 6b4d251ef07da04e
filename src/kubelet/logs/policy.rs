//! Policy of the rotation of container logs, as in the kubelet (`logs/container_log_manager.go`).

use std::time::Duration;

/// Suffix of a compressed rotated log.
pub(super) const COMPRESSED: &str = ".gz";

/// Suffix of a file that is being written.
pub(super) const TEMPORARY: &str = ".tmp";

/// Limits of the log of each container. The defaults are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotatePolicy {
    /// Size in bytes from which a log is rotated; `None` for never.
    pub max_size: Option<u64>,
    /// Maximum number of files of a log, including the current one.
    pub max_files: usize,
    /// Interval between the end of one check of all logs and the start of the next.
    pub monitor_interval: Duration,
}

/// Names of rotated logs to remove and to compress before the log itself is rotated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RotationPlan {
    /// Files to remove, in order: leftovers of failed rotations, then the oldest logs.
    pub(super) remove: Vec<String>,
    /// Files to compress, the oldest first.
    pub(super) compress: Vec<String>,
}

impl Default for LogRotatePolicy {
    fn default() -> Self {
        Self { max_size: Some(10 << 20), max_files: 5, monitor_interval: Duration::from_secs(10) }
    }
}

impl RotationPlan {
    /// Plans the rotation of a log from the names of the earlier rotated files. After the rotation
    /// at most `max_files` files exist, including the log and its new rotated file.
    pub(super) fn new(mut names: Vec<String>, max_files: usize) -> Self {
        names.sort();
        let (mut used, mut remove): (Vec<_>, Vec<_>) =
            names.iter().cloned().partition(|name| is_in_use(name, &names));
        let excess = used.len().saturating_sub(max_files.saturating_sub(2));
        remove.extend(used.drain(..excess));
        used.retain(|name| !name.ends_with(COMPRESSED));
        Self { remove, compress: used }
    }
}

/// Whether a file is a usable rotated log: not unfinished, and without a compressed copy.
fn is_in_use(name: &str, names: &[String]) -> bool {
    let compressed = format!("{name}{COMPRESSED}");
    !name.ends_with(TEMPORARY) && (name.ends_with(COMPRESSED) || !names.contains(&compressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(names: &[&str], max_files: usize) -> (Vec<String>, Vec<String>) {
        let plan = RotationPlan::new(names.iter().map(ToString::to_string).collect(), max_files);
        (plan.remove, plan.compress)
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn log_rotation_removes_leftovers_and_the_oldest_logs_and_compresses_the_rest() {
        for (names, max_files, remove, compress) in [
            (&[][..], 5, &[][..], &[][..]),
            (&["l.1"], 5, &[], &["l.1"]),
            (&["l.2", "l.1.gz"], 5, &[], &["l.2"]),
            (&["l.3", "l.1.gz", "l.2.gz"], 5, &[], &["l.3"]),
            // The rotation adds two more files.
            (&["l.4", "l.2.gz", "l.1.gz", "l.3.gz"], 5, &["l.1.gz"], &["l.4"]),
            (&["l.1.gz", "l.2.gz", "l.3.gz"], 3, &["l.1.gz", "l.2.gz"], &[]),
            (&["l.1.gz", "l.2"], 2, &["l.1.gz", "l.2"], &[]),
            // Leftovers of two interrupted rotations: one while it compressed a file, one before it
            // removed the compressed file's original.
            (&["l.1", "l.1.tmp"], 5, &["l.1.tmp"], &["l.1"]),
            (&["l.1", "l.1.gz"], 5, &["l.1"], &[]),
            (
                &["l.1.gz.tmp", "l.1", "l.1.gz", "l.2.gz", "l.3", "l.4"],
                4,
                &["l.1", "l.1.gz.tmp", "l.1.gz", "l.2.gz"],
                &["l.3", "l.4"],
            ),
        ] {
            assert_eq!(plan(names, max_files), (owned(remove), owned(compress)), "{names:?} of {max_files}");
        }
    }
}
