//! What servers leave behind when they are killed.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::crictl::Crictl;
use super::life::Runtime;

/// Removes the pods that a runtime still has: their network namespaces are known by name to it alone.
pub(crate) fn remove_pods(runtime: &impl Runtime) {
    if let Ok(crictl) = Crictl::new("crictl-1.36", &runtime.socket(), runtime.folder()) {
        crictl.run(&["rmp", "--all", "--force"]);
    }
}

/// Kills what still runs for a server and names its folder in its arguments, with what runs below it, and unmounts what is
/// mounted there.
pub(crate) fn clear(folder: &Path) {
    for process in processes_that_name(folder) {
        let _ = kill_process(process, Signal::KILL);
    }
    unmount_below(folder);
}

/// Processes other than this one that have a path below `folder` in their arguments.
fn processes_that_name(folder: &Path) -> Vec<Pid> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let own = std::process::id();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.parse::<u32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.windows(folder.len()).any(|part| part == folder)
        })
        .flat_map(|pid| children_first(i32::try_from(pid).unwrap()))
        .filter_map(Pid::from_raw)
        .collect()
}

/// A process and those below it, deepest first: a shim's containers die with it.
fn children_first(pid: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut all: Vec<i32> =
        children.split_whitespace().filter_map(|child| child.parse().ok()).flat_map(children_first).collect();
    all.push(pid);
    all
}

fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|path| Path::new(path).starts_with(folder))
        .collect();
    for path in below.into_iter().rev() {
        let _ = Command::new("umount").args(["--lazy", path]).output();
    }
}
