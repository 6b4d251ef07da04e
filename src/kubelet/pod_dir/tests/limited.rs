//! Parts of tests that run in a separate process with a resource limit.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable with the working directory of the test in the limited process.
const DIRECTORY: &str = "PROBESHIM_TEST_DIRECTORY";

/// Returns the working directory of the test in the limited process; `None` in other processes.
pub(in crate::kubelet::pod_dir) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs the test with this path in a process with a limit, as options of `ulimit`. In that process,
/// the function `directory` returns the argument `directory`.
pub(in crate::kubelet::pod_dir) fn run(test: &str, limit: &str, directory: &Path) {
    let (_, name) = test.split_once("::").unwrap();
    let script = format!("ulimit {limit} && exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
    let output = command.args([name, "--exact", "--nocapture"]).env(DIRECTORY, directory).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
}
