//! Parts of tests that run in a process of their own, with a limit on a resource.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Tells the process with the limit where its test works.
const DIRECTORY: &str = "PROBESHIM_TEST_DIRECTORY";

/// Returns the directory in which the running test works, in the process with the limit.
pub(in crate::kubelet::pod_dir) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs a test, by its path, in a process with a limit as `ulimit` takes it. `directory` returns `directory` there.
pub(in crate::kubelet::pod_dir) fn run(test: &str, limit: &str, directory: &Path) {
    let (_, name) = test.split_once("::").unwrap();
    let script = format!("ulimit {limit} && exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
    let output = command.args([name, "--exact", "--nocapture"]).env(DIRECTORY, directory).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
}
