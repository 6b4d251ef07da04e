//! Names of the lints.

use crate::execsync::cause_name;

/// A probe killed the container.
pub(super) const KILLS: &str = "kills";

/// The container exited by itself.
pub(super) const RESTARTS: &str = "restarts";

/// The runtime could not start the container.
pub(super) const START_ERRORS: &str = "start-errors";

/// The postStart hook of the container failed.
pub(super) const FAILED_POST_START: &str = "failed-post-start";

/// A kubelet stopped the container, and no exec probe explains it.
pub(super) const KUBELET_STOPS: &str = "kubelet-stops";

/// The readiness of the container was lost again and again.
pub(super) const FLAPPING: &str = "flapping";

/// Attempts failed.
pub(super) const FAILURES: &str = "failures";

/// A preStop hook ran until the grace period was over.
pub(super) const LONG_PRE_STOP: &str = "long-pre-stop";

/// The command writes more output than a kubelet reads, or than a message may have.
pub(super) const LARGE_OUTPUT: &str = "large-output";

/// Attempts failed because of the timeout.
pub(super) const TIMEOUT: &str = "timeout";

/// Attempts took most of the timeout.
pub(super) const THIN_MARGIN: &str = "thin-margin";

/// Attempts took longer than the default timeout.
pub(super) const DEFAULT_TIMEOUT: &str = "default-timeout";

/// Attempts took longer than the period.
pub(super) const SHORT_PERIOD: &str = "short-period";

/// The runtime was slow to start commands.
pub(super) const SLOW_START: &str = "slow-start";

/// A process held the output of a command that had exited.
pub(super) const HELD_OUTPUT: &str = "held-output";

/// The container reached its CPU limit.
pub(super) const THROTTLED: &str = "throttled";

/// The kernel killed processes of the container for lack of memory.
pub(super) const OUT_OF_MEMORY: &str = "out-of-memory";

/// Commands could not start a process.
pub(super) const PIDS_LIMIT: &str = "pids-limit";

/// The container was frozen.
pub(super) const FROZEN: &str = "frozen";

/// Processes waited for I/O.
pub(super) const SLOW_DISK: &str = "slow-disk";

/// Processes waited for memory.
pub(super) const MEMORY_PRESSURE: &str = "memory-pressure";

/// Processes waited for a processor of the node.
pub(super) const BUSY_NODE: &str = "busy-node";

/// More ExecSyncs were in flight than the node has CPU for.
pub(super) const PROBE_STORM: &str = "probe-storm";

/// Attempts ended with an error, which the kubelet does not count.
pub(super) const DISCARDED_ERRORS: &str = "discarded-errors";

/// A program of a command does not exist.
pub(super) const MISSING_PROGRAM: &str = cause_name::MISSING_PROGRAM;

/// A program of a command cannot be executed.
pub(super) const NOT_EXECUTABLE: &str = cause_name::NOT_EXECUTABLE;

/// Two probes of a container have the same command.
pub(super) const SAME_COMMAND: &str = "same-command";

/// A shell runs one program.
pub(super) const SHELL_FOR_ONE_PROGRAM: &str = "shell-for-one-program";

/// Exec probes occupy the runtime for a notable time.
pub(super) const EXEC_COST: &str = "exec-cost";

/// The runtime answers no calls.
pub(super) const HANGING_RUNTIME: &str = "hanging-runtime";

/// The runtime did not answer an ExecSync.
pub(super) const UNANSWERED_CALL: &str = "unanswered-call";

/// The runtime was not available.
pub(super) const RUNTIME_UNAVAILABLE: &str = "runtime-unavailable";

/// A process still ran after its ExecSync.
pub(super) const LEAKED_PROCESS: &str = "leaked-process";

/// ExecSyncs left zombies.
pub(super) const ZOMBIES: &str = "zombies";

/// The prober of probeshim was too late.
pub(super) const LATE_PROBER: &str = "late-prober";

/// A limit of concurrent ExecSyncs held or refused calls.
pub(super) const EXEC_LIMIT: &str = "exec-limit";

/// probeshim itself affected attempts.
pub(super) const AFFECTED_ATTEMPTS: &str = "affected-attempts";

/// Observations are missing.
pub(super) const INCOMPLETE: &str = "incomplete";

/// Names of the lints.
pub const LINTS: [&str; 38] = [
    KILLS,
    RESTARTS,
    START_ERRORS,
    FAILED_POST_START,
    KUBELET_STOPS,
    FLAPPING,
    FAILURES,
    LONG_PRE_STOP,
    LARGE_OUTPUT,
    TIMEOUT,
    THIN_MARGIN,
    DEFAULT_TIMEOUT,
    SHORT_PERIOD,
    SLOW_START,
    HELD_OUTPUT,
    THROTTLED,
    OUT_OF_MEMORY,
    PIDS_LIMIT,
    FROZEN,
    SLOW_DISK,
    MEMORY_PRESSURE,
    BUSY_NODE,
    PROBE_STORM,
    DISCARDED_ERRORS,
    MISSING_PROGRAM,
    NOT_EXECUTABLE,
    SAME_COMMAND,
    SHELL_FOR_ONE_PROGRAM,
    EXEC_COST,
    HANGING_RUNTIME,
    UNANSWERED_CALL,
    RUNTIME_UNAVAILABLE,
    LEAKED_PROCESS,
    ZOMBIES,
    LATE_PROBER,
    EXEC_LIMIT,
    AFFECTED_ATTEMPTS,
    INCOMPLETE,
];
