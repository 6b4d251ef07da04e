//! The short cause in an error message of a runtime.

/// Maximum length of a short cause, in characters.
const MAX_CAUSE_CHARS: usize = 80;

/// Text of gRPC if a response is larger than its sender or its receiver permits.
pub const LARGE_MESSAGE: &str = "message larger than max";

/// Cause if the working directory of a container does not exist.
pub const NO_WORKING_DIRECTORY: &str = "no working directory";

/// Cause if the program of a command does not exist (runc).
const MISSING_PROGRAM: &str = "executable file not found";

/// Texts of errors about a working directory that does not exist (runc: `finalizeNamespace`; crun:
/// `libcrun_run_linux_container` and `libcrun_join_process`).
const CHANGE_DIRECTORY: [&str; 3] = ["chdir to cwd", "chdir to `", "chdir `"];

/// Causes that are searched in the whole message, because runtimes wrap them in different texts.
/// The first that occurs is the cause.
const KNOWN_CAUSES: [&str; 11] = [
    LARGE_MESSAGE,
    MISSING_PROGRAM,
    "permission denied",
    "no such file or directory",
    "exec format error",
    "resource temporarily unavailable",
    "cannot allocate memory",
    "connection refused",
    "container not running",
    "not in running state",
    "deadline exceeded",
];

/// Texts of errors about a container that has exited.
const CONTAINER_EXITED: [&str; 11] = [
    "container is in CONTAINER_EXITED state",
    "no running task found",
    "init process is not running",
    "cannot exec in a stopped state",
    "cannot exec in a deleted state",
    "cannot exec in a stopped container",
    "cannot exec a container that has stopped",
    "container is not created or running",
    "container not running",
    "not in running state",
    "namespace path: lstat /proc/",
];

/// Returns the cause in an error message, in a few words: the innermost of the nested errors
/// that the runtime's components separate by colons.
#[must_use]
pub fn error_cause(message: &str) -> &str {
    if let Some(known) = known_cause(message) {
        return known;
    }
    let text = message.split_once(" desc = ").map_or(message, |(_, text)| text);
    // containerd appends the name of the error class to errors of runc.
    let text = text.trim_end().trim_end_matches(": unknown");
    let innermost = text.rsplit(": ").find(|part| !part.trim().is_empty());
    let cause = innermost.unwrap_or_default().trim();
    cause.char_indices().nth(MAX_CAUSE_CHARS).map_or(cause, |(end, _)| &cause[..end])
}

/// Returns the cause in an error message if it is a known one, which contains nothing of the
/// request or of the output of a command.
#[must_use]
pub fn known_cause(message: &str) -> Option<&'static str> {
    let lower = message.to_ascii_lowercase();
    if lower.contains("no such file or directory")
        && CHANGE_DIRECTORY.iter().any(|text| message.contains(text))
    {
        return Some(NO_WORKING_DIRECTORY);
    }
    // crun: "executable file `curl` not found in $PATH: No such file or directory".
    let is_of_crun = lower.contains("executable file `") && lower.contains(" not found");
    let has = |cause: &str| lower.contains(cause) || (is_of_crun && cause == MISSING_PROGRAM);
    KNOWN_CAUSES.into_iter().find(|cause| has(cause))
}

/// Returns whether a runtime rejected an ExecSync because the container had exited
/// (containerd: `internal/cri/server/container_execsync.go`: `getContainer`, and
/// `cmd/containerd-shim-runc-v2/process` for a task that ended after that check; CRI-O:
/// `server/container_execsync.go`; runc: `exec.go`).
#[must_use]
pub fn is_container_exited(message: &str) -> bool {
    CONTAINER_EXITED.iter().any(|text| message.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_an_error_is_short_in_the_messages_of_all_runtimes() {
        for (message, cause) in [
            (
                "rpc error: code = Unknown desc = failed to exec in container: failed to start exec \"e8d2\": OCI runtime exec failed: exec failed: unable to start container process: exec: \"curl\": executable file not found in $PATH: unknown",
                "executable file not found",
            ),
            (
                "rpc error: code = Unknown desc = command error: exec failed: exec: \"curl\": executable file not found in $PATH\n, stdout: , stderr: , exit code -1",
                "executable file not found",
            ),
            (
                "executable file `curl` not found in $PATH: No such file or directory",
                "executable file not found",
            ),
            ("open executable: Permission denied", "permission denied"),
            ("rpc error: code = Unavailable desc = transport: broken pipe", "broken pipe"),
            (
                "OCI runtime exec failed: exec failed: unable to start container process: chdir to cwd (\"/work\") set in config.json failed: no such file or directory: unknown",
                NO_WORKING_DIRECTORY,
            ),
            (
                "crun: chdir `/work`: No such file or directory: OCI runtime attempted to invoke a command",
                NO_WORKING_DIRECTORY,
            ),
            ("chdir to cwd (\"/work\") set in config.json failed: permission denied", "permission denied"),
            ("trying to send message larger than max (16777221 vs. 16777216)", LARGE_MESSAGE),
            ("failed to exec in container: something odd: unknown", "something odd"),
            ("rpc error: code = Internal desc = ", ""),
            ("rpc error: code = Unknown desc = : : ", ":"),
            ("plain", "plain"),
            ("", ""),
        ] {
            assert_eq!(error_cause(message), cause, "{message}");
        }
        assert_eq!(error_cause(&"ö".repeat(100)), "ö".repeat(80));
    }

    #[test]
    fn a_container_that_has_exited_is_known_by_the_messages_of_all_runtimes() {
        let load =
            "failed to exec in container: failed to load task: no running task found: task 5a4d not found";
        for message in [
            "failed to exec in container: container is in CONTAINER_EXITED state",
            load,
            "failed to start exec \"e8d2\": cannot exec in a stopped state",
            "unable to create new parent process: namespace path: lstat /proc/6108/ns/ipc: no such file or directory",
        ] {
            assert!(is_container_exited(message), "{message}");
        }
        for message in
            ["exec: \"curl\": executable file not found in $PATH", "cannot exec in a paused state", ""]
        {
            assert!(!is_container_exited(message), "{message}");
        }
    }
}
