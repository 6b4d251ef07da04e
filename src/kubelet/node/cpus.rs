//! Processors of the node, from sysfs.

use std::path::Path;

use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};

/// Returns the number of online processors, whatever share of them probeshim may use.
pub(super) fn online_cpus(sysfs: &Path) -> usize {
    match cpus(sysfs, "online").len() {
        0 => std::thread::available_parallelism().map_or(1, Into::into),
        count => count,
    }
}

/// Returns the paths of the counters of thermal throttling, which are hidden from containers. Only
/// processors with such counters have them (`pkg/securitycontext/util.go`: `defaultMaskedPaths`).
pub(super) fn thermal_throttle_paths(sysfs: &Path) -> Vec<String> {
    let cpus = match cpus(sysfs, "possible") {
        cpus if cpus.is_empty() => (0..u32::try_from(online_cpus(sysfs)).unwrap_or(0)).collect(),
        cpus => cpus,
    };
    let below = |cpu: u32| format!("devices/system/cpu/cpu{cpu}/thermal_throttle");
    let has_counters = |path: &String| sysfs.join(path).exists();
    // Containers have sysfs at this path, wherever the node has it.
    cpus.into_iter().map(below).filter(has_counters).map(|path| format!("/sys/{path}")).collect()
}

/// Returns the numbers of the processors in a file of sysfs, such as `online` or `possible`. The
/// list is empty if the file cannot be read.
fn cpus(sysfs: &Path, file: &str) -> Vec<u32> {
    let text = read_to_string(&sysfs.join("devices/system/cpu").join(file), MAX_SMALL_FILE_BYTES);
    text.ok().and_then(|text| parse_cpus(text.trim())).unwrap_or_default()
}

/// Parses numbers and ranges, such as `0-3,8`.
fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lists_of_processors_have_numbers_and_ranges() {
        for (text, expected) in
            [("0", Some(vec![0])), ("0-2,8", Some(vec![0, 1, 2, 8])), ("", None), ("0-", None), ("a", None)]
        {
            assert_eq!(parse_cpus(text), expected, "{text}");
        }
    }

    #[test]
    fn all_online_processors_are_counted_even_if_probeshim_may_use_fewer() {
        let sysfs = tempfile::tempdir().unwrap();
        let dir = sysfs.path().join("devices/system/cpu");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("online"), "0-2,4-99\n").unwrap();
        assert_eq!(online_cpus(sysfs.path()), 99);
        fs::remove_file(dir.join("online")).unwrap();
        assert_eq!(online_cpus(sysfs.path()), std::thread::available_parallelism().unwrap().get());
    }

    #[test]
    fn thermal_counters_of_possible_processors_are_masked_where_they_exist() {
        let sysfs = tempfile::tempdir().unwrap();
        let dir = sysfs.path().join("devices/system/cpu");
        for cpu in ["cpu0/thermal_throttle", "cpu1", "cpu2/thermal_throttle", "cpu9/thermal_throttle"] {
            fs::create_dir_all(dir.join(cpu)).unwrap();
        }
        fs::write(dir.join("online"), "0").unwrap();
        let path = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
        assert_eq!(thermal_throttle_paths(sysfs.path()), [path(0)], "all online processors");
        fs::write(dir.join("possible"), "0-3\n").unwrap();
        assert_eq!(thermal_throttle_paths(sysfs.path()), [path(0), path(2)]);
    }
}
