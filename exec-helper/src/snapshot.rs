//! Reads the attributes of a process that is stopped at its exec from `/proc`, and compares those
//! of two processes. Each field has a name, so that a difference can be reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::process::Pid;

use crate::protocol::{Difference, Snapshot, SnapshotField};
use crate::sys;
use crate::text::shortened;

/// Fields of `/proc/PID/status` that are compared as they are.
const STATUS: [&str; 21] = [
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "THP_enabled",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Speculation_Store_Bypass",
    "SpeculationIndirectBranch",
    "Cpus_allowed",
    "Mems_allowed",
    "x86_Thread_features_locked",
];

/// Fields of `/proc/PID/status` with pending signals. runc is written in Go, whose runtime sends
/// SIGURG to its own threads at any time. The signal may still be pending at the exec, and has no
/// effect then.
const PENDING: [&str; 2] = ["SigPnd", "ShdPnd"];

/// Fields of `/proc/PID/status` with the ids of a process in each of its namespaces. Only the
/// number of namespaces is the same for two processes.
const IDS: [&str; 3] = ["NSpid", "NSpgid", "NSsid"];

/// Files of `/proc/PID` that are compared as a whole.
const FILES: [&str; 17] = [
    "cgroup",
    "oom_score_adj",
    "loginuid",
    "sessionid",
    "personality",
    "coredump_filter",
    "timerslack_ns",
    "environ",
    "cmdline",
    "uid_map",
    "gid_map",
    "setgroups",
    "attr/current",
    "attr/exec",
    "attr/fscreate",
    "attr/keycreate",
    "attr/sockcreate",
];

/// Namespaces of a process.
const NAMESPACES: [&str; 10] =
    ["cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts"];

/// Fields of `/proc/PID/stat`, with their numbers in `proc(5)`.
const STAT: [(&str, usize); 4] = [("tty_nr", 7), ("nice", 19), ("rt_priority", 40), ("policy", 41)];

/// Maximum length of a value in a difference, in bytes.
const MAX_SHOWN: usize = 200;

/// Fields whose values must not be shown, because they may be secret.
const SECRET: [&str; 2] = ["environ", "cmdline"];

/// Maximum number of descriptors of a process that is compared. The runtime leaves three.
const MAX_DESCRIPTORS: usize = 16;

/// Maximum time for which a process is held.
const HOLD_LIMIT: Duration = Duration::from_millis(50);

/// Reads the fields of a process. Files that the kernel does not have are left out. Fails if that
/// takes longer than the process may be held.
pub(crate) fn read(pid: Pid) -> io::Result<Snapshot> {
    read_within(HOLD_LIMIT, pid)
}

fn read_within(limit: Duration, pid: Pid) -> io::Result<Snapshot> {
    let started = Instant::now();
    let in_time = || {
        let is_late = started.elapsed() > limit;
        if is_late { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(()) }
    };
    let dir = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let mut fields = BTreeMap::new();
    // The name of the program has any bytes.
    let text = |name| fs::read(dir.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    read_status(&text("status")?, &mut fields);
    read_limits(&text("limits")?, &mut fields);
    read_stat(&text("stat")?, &mut fields);
    for name in FILES {
        in_time()?;
        // A security module that is not active has files that cannot be read.
        if let Ok(bytes) = fs::read(dir.join(name)) {
            fields.insert(name.to_owned(), bytes);
        }
    }
    for name in NAMESPACES {
        if let Ok(link) = fs::read_link(dir.join("ns").join(name)) {
            fields.insert(format!("ns/{name}"), link.as_os_str().as_bytes().to_vec());
        }
    }
    in_time()?;
    // Paths, because a look at the files themselves waits for a file system that hangs. Both
    // processes have the same mounts and the same root.
    for name in ["cwd", "exe"] {
        let path = fs::read_link(dir.join(name))?;
        fields.insert(name.to_owned(), path.into_os_string().into_vec());
    }
    fields.insert("root".to_owned(), root(&dir)?.into_bytes());
    in_time()?;
    fields.insert("ioprio".to_owned(), sys::io_priority(pid)?.to_string().into_bytes());
    fields.insert("fd".to_owned(), descriptors(&dir, in_time)?.into_bytes());
    let fields = fields.into_iter().map(|(name, value)| SnapshotField { name, value });
    Ok(Snapshot { fields: fields.collect() })
}

/// Returns the identity of the root directory, as the kernel knows it without asking a server.
fn root(dir: &Path) -> io::Result<String> {
    let found = statx(CWD, dir.join("root"), AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    Ok(format!("{}:{}:{}", found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

fn read_status(status: &str, fields: &mut BTreeMap<String, Vec<u8>>) {
    let lines: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).collect();
    let value = |name: &str| lines.get(name).map(|value| value.trim());
    for name in STATUS {
        if let Some(value) = value(name) {
            fields.insert(name.to_owned(), value.as_bytes().to_vec());
        }
    }
    for name in PENDING {
        if let Some(signals) = value(name).and_then(|signals| u64::from_str_radix(signals, 16).ok()) {
            let signals = signals & !(1 << (libc::SIGURG - 1));
            fields.insert(name.to_owned(), format!("{signals:016x}").into_bytes());
        }
    }
    for name in IDS {
        let count = value(name).unwrap_or_default().split_whitespace().count();
        fields.insert(name.to_owned(), format!("{count} namespaces").into_bytes());
    }
}

fn read_limits(limits: &str, fields: &mut BTreeMap<String, Vec<u8>>) {
    // "Max open files            1024                 4096                 files"
    for line in limits.lines().skip(1) {
        let (Some(name), Some(values)) = (line.get(..26), line.get(26..)) else { continue };
        let values: Vec<&str> = values.split_whitespace().take(2).collect();
        fields.insert(format!("limits/{}", name.trim()), values.join(" ").into_bytes());
    }
}

fn read_stat(stat: &str, fields: &mut BTreeMap<String, Vec<u8>>) {
    let values: Vec<&str> = stat_fields(stat).collect();
    for (name, number) in STAT {
        let value = values.get(number - 3).copied().unwrap_or_default();
        fields.insert(format!("stat/{name}"), value.as_bytes().to_vec());
    }
}

/// Returns the fields of a `/proc/PID/stat` from the third.
pub(crate) fn stat_fields(stat: &str) -> impl Iterator<Item = &str> {
    // The second field is the name of the program, which may contain spaces and parentheses.
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Returns the kinds and flags of the open descriptors, and the owners of pipes. Looks at no file
/// of the container, whose file system may hang. Fails if there are too many descriptors.
fn descriptors(dir: &Path, in_time: impl Fn() -> io::Result<()>) -> io::Result<String> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir.join("fd"))? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        if numbers.len() > MAX_DESCRIPTORS {
            return Err(io::Error::other(format!("it has more than {MAX_DESCRIPTORS} descriptors")));
        }
    }
    numbers.sort_unstable();
    let described = numbers.into_iter().map(|number| {
        in_time()?;
        let path = dir.join(format!("fd/{number}"));
        let link = fs::read_link(&path)?;
        let kind = match link.to_string_lossy().split_once(":[") {
            Some((kind @ ("pipe" | "socket"), _)) => {
                let found = fs::metadata(path)?;
                format!("{kind}, owner {}:{}, mode {:o}", found.uid(), found.gid(), found.mode())
            }
            _ => link.display().to_string(),
        };
        let info = fs::read_to_string(dir.join(format!("fdinfo/{number}")))?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default().trim();
        Ok(format!("{number}: {kind}, flags {flags}"))
    });
    let described: io::Result<Vec<String>> = described.collect();
    Ok(described?.join("; "))
}

/// Returns the fields that differ between the runtime's process and the helper's.
#[must_use]
pub fn differences(runtime: &Snapshot, direct: &Snapshot) -> Vec<Difference> {
    let by_name = |snapshot: &Snapshot| -> BTreeMap<String, Vec<u8>> {
        snapshot.fields.iter().map(|field| (field.name.clone(), field.value.clone())).collect()
    };
    let (runtime, direct) = (by_name(runtime), by_name(direct));
    let names: BTreeSet<&String> = runtime.keys().chain(direct.keys()).collect();
    let differs = |name: &&String| runtime.get(*name) != direct.get(*name);
    let shown = |name: &str, value: Option<&Vec<u8>>| match value {
        None => "absent".to_owned(),
        Some(value) if SECRET.contains(&name) => format!("{} bytes", value.len()),
        Some(value) => {
            let end = value.iter().rposition(|byte| !b"\n\0".contains(byte)).map_or(0, |last| last + 1);
            shortened(&value[..end], MAX_SHOWN)
        }
    };
    names
        .into_iter()
        .filter(differs)
        .map(|name| Difference {
            field: name.clone(),
            runtime: shown(name, runtime.get(name)),
            direct: shown(name, direct.get(name)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    /// Starts a copy of `cat`, reads its fields twice, and ends it.
    fn read_twice(program: impl AsRef<OsStr>) -> [Snapshot; 2] {
        let mut cat = Command::new(program);
        let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        // With its first output, the loader has closed the files of libraries.
        input.write_all(b".").unwrap();
        output.read_exact(&mut [0]).unwrap();
        let pid = Pid::from_raw(cat.id().cast_signed()).unwrap();
        let fields = [(); 2].map(|()| read_within(Duration::MAX, pid));
        // The program ends with its input.
        drop(input);
        cat.wait().unwrap();
        fields.map(Result::unwrap)
    }

    #[test]
    fn a_process_does_not_differ_from_itself() {
        let [first, second] = read_twice("cat");
        assert_eq!(differences(&first, &second), []);
        assert!(first.fields.len() > 60, "{first:?}");
    }

    #[test]
    fn a_pending_signal_of_gos_runtime_is_no_difference() {
        let mut fields = BTreeMap::new();
        read_status("NSpid:\t7\nSigPnd:\t0000000000400001\n", &mut fields);
        assert_eq!(fields["SigPnd"], b"0000000000000001");
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        let snapshot = |fields: &[(&str, &str)]| Snapshot {
            fields: fields
                .iter()
                .map(|(name, value)| SnapshotField {
                    name: (*name).to_owned(),
                    value: value.as_bytes().to_vec(),
                })
                .collect(),
        };
        let runtime = snapshot(&[("Umask", "0022"), ("cgroup", "0::/a"), ("environ", "A=secret\0")]);
        let direct = snapshot(&[("Umask", "0077"), ("environ", "A=other\0"), ("nice", "0")]);
        let found: Vec<[String; 3]> = differences(&runtime, &direct)
            .into_iter()
            .map(|difference| [difference.field, difference.runtime, difference.direct])
            .collect();
        let expected = [
            ["Umask", "0022", "0077"],
            ["cgroup", "0::/a", "absent"],
            ["environ", "9 bytes", "8 bytes"],
            ["nice", "absent", "0"],
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_process_with_a_name_that_is_not_utf8_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(OsStr::from_bytes(b"cat \xff)"));
        fs::copy("/bin/cat", &program).unwrap();
        let ([found, _], [usual, _]) = (read_twice(&program), read_twice("cat"));
        for (name, _) in STAT {
            let name = format!("stat/{name}");
            assert_eq!(found.text(&name), usual.text(&name), "{name}");
        }
    }

    #[test]
    fn a_program_name_with_spaces_does_not_shift_the_fields_of_stat() {
        let mut fields = BTreeMap::new();
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        read_stat(&format!("1 (a ) b) S {}", numbers.join(" ")), &mut fields);
        assert_eq!(fields["stat/nice"], b"19");
        assert_eq!(fields["stat/policy"], b"41");
    }
}
