//! Reasons of events. An event that the kubelet has too carries the kubelet's reason
//! (`pkg/kubelet/events/event.go`).

// Reasons of the kubelet.

/// Reasons of events about starts, exits and kills of containers.
pub const LIFECYCLE: [&str; 11] = [
    CREATED,
    STARTED,
    KILLING,
    KILL_PREDICTED,
    KILL_UNPREDICTED,
    WOULD_KILL,
    CONTAINER_STARTED,
    CONTAINER_START_FAILED,
    FAILED_POST_START_HOOK,
    CONTAINER_EXITED,
    CONTAINER_OUT_OF_MEMORY,
];

/// A container is stopped.
pub const KILLING: &str = "Killing";
/// The preStop hook of a container failed.
pub const FAILED_PRE_STOP_HOOK: &str = "FailedPreStopHook";
/// The postStart hook of a container failed.
pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
/// A container was created.
pub const CREATED: &str = "Created";
/// A container was started.
pub const STARTED: &str = "Started";
/// A container could not be created or started, an image could not be pulled, or directories of a
/// pod could not be created.
pub const FAILED: &str = "Failed";
/// A container or an image pull waits for its back-off.
pub const BACK_OFF: &str = "BackOff";
/// An image is pulled.
pub const PULLING: &str = "Pulling";
/// An image was pulled, or was already present.
pub const PULLED: &str = "Pulled";
/// An image that is never pulled is missing.
pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
/// The reference of an image is invalid, or the runtime cannot inspect the image.
pub const INSPECT_FAILED: &str = "InspectFailed";
/// A pull secret of a pod does not exist.
pub const FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET: &str = "FailedToRetrieveImagePullSecret";
/// A volume of a pod cannot be set up.
pub const FAILED_MOUNT: &str = "FailedMount";
/// The containers or the sandbox of a pod cannot be stopped.
pub const FAILED_KILL_POD: &str = "FailedKillPod";
/// The sandbox of a pod cannot be created.
pub const FAILED_CREATE_POD_SAND_BOX: &str = "FailedCreatePodSandBox";
/// A pod is not started because the network of the runtime is not ready.
pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
/// The sandbox of a pod is replaced.
pub const SANDBOX_CHANGED: &str = "SandboxChanged";
/// A pod has run longer than its activeDeadlineSeconds.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// A pod is not admitted because of an unsafe kernel parameter.
pub const SYSCTL_FORBIDDEN: &str = "SysctlForbidden";
/// A pod is not admitted because a label of it names another operating system.
pub const POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH: &str = "PodOSSelectorNodeLabelDoesNotMatch";
/// A pod is not admitted because it is for another operating system.
pub const POD_OS_NOT_SUPPORTED: &str = "PodOSNotSupported";
/// A pod is not admitted because it selects other nodes.
pub const NODE_AFFINITY: &str = "NodeAffinity";
/// A pod is not admitted because another pod uses a port of the host.
pub const NODE_PORTS: &str = "NodePorts";
/// A pod is not admitted because the node lacks resources.
pub const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
/// A pod of a workload is not admitted because the node lacks CPU.
pub const OUT_OF_CPU: &str = "OutOfcpu";
/// A pod of a workload is not admitted because the node lacks memory.
pub const OUT_OF_MEMORY: &str = "OutOfmemory";
/// A pod of a workload is not admitted because the node lacks storage.
pub const OUT_OF_EPHEMERAL_STORAGE: &str = "OutOfephemeral-storage";
/// A pod of a workload is not admitted because the node runs as many pods as it may.
pub const OUT_OF_PODS: &str = "OutOfpods";
/// A pod of a workload is not admitted because the node lacks huge pages of 2 MiB.
pub const OUT_OF_HUGE_PAGES_2MI: &str = "OutOfhugepages-2Mi";
/// A pod of a workload is not admitted because the node lacks huge pages of 1 GiB.
pub const OUT_OF_HUGE_PAGES_1GI: &str = "OutOfhugepages-1Gi";
/// A pod is not admitted because the node lacks AppArmor.
pub const APP_ARMOR: &str = "AppArmor";
/// A probe failed, or its result is unknown.
pub const UNHEALTHY: &str = "Unhealthy";
/// A probe succeeded with a warning.
pub const PROBE_WARNING: &str = "ProbeWarning";

// Reasons of probeshim.

/// An attempt was discarded because the prober was late.
pub const PROBE_DISCARDED: &str = "ProbeDiscarded";
/// An attempt ended with a panic of the prober.
pub const PROBE_PANICKED: &str = "ProbePanicked";
/// A container would be killed for a probe, but is not.
pub const WOULD_KILL: &str = "WouldKill";
/// A container could not be stopped; the prober tries again.
pub const KILL_FAILED: &str = "KillFailed";
/// A kill was aborted before the container was stopped.
pub const KILL_ABORTED: &str = "KillAborted";
/// A container is not killed for a reason in the message.
pub const KILL_SKIPPED: &str = "KillSkipped";
/// The kubelet killed a container, as the prober predicted.
pub const KILL_PREDICTED: &str = "KillPredicted";
/// The kubelet killed a container, and the prober had not predicted it.
pub const KILL_UNPREDICTED: &str = "KillUnpredicted";
/// The prober predicted a kill that the kubelet did not make.
pub const KILL_NOT_OBSERVED: &str = "KillNotObserved";
/// `--max-kills` is reached.
pub const KILL_RATE_LIMITED: &str = "KillRateLimited";
/// A `--never-kill` selector matches no container.
pub const SELECTOR_MATCHES_NOTHING: &str = "SelectorMatchesNothing";
/// The enforcement mode was switched.
pub const ENFORCEMENT_MODE_CHANGED: &str = "EnforcementModeChanged";
/// A fault rule was activated.
pub const FAULT_ACTIVATED: &str = "FaultActivated";
/// A fault rule has ended.
pub const FAULT_ENDED: &str = "FaultEnded";
/// A pause of probes began.
pub const PAUSE_BEGAN: &str = "PauseBegan";
/// A pause of probes has ended.
pub const PAUSE_ENDED: &str = "PauseEnded";
/// A sandbox runs.
pub const SANDBOX_STARTED: &str = "SandboxStarted";
/// A sandbox has stopped.
pub const SANDBOX_STOPPED: &str = "SandboxStopped";
/// A sandbox was removed.
pub const SANDBOX_REMOVED: &str = "SandboxRemoved";
/// A container was created by a client.
pub const CONTAINER_CREATED: &str = "ContainerCreated";
/// A container was started by a client.
pub const CONTAINER_STARTED: &str = "ContainerStarted";
/// The runtime could not start a container of a client.
pub const CONTAINER_START_FAILED: &str = "ContainerStartFailed";
/// A container has exited.
pub const CONTAINER_EXITED: &str = "ContainerExited";
/// A container was removed.
pub const CONTAINER_REMOVED: &str = "ContainerRemoved";
/// The kernel killed a process of a container because its memory was used up.
pub const CONTAINER_OUT_OF_MEMORY: &str = "ContainerOutOfMemory";
/// A container that was ready is no longer ready, because its readiness probe failed.
pub const CONTAINER_NOT_READY: &str = "ContainerNotReady";
/// A container that was not ready is ready again.
pub const CONTAINER_READY: &str = "ContainerReady";
/// A pod or container of a client has ended and cannot be restarted.
pub const NOT_RESTARTABLE: &str = "NotRestartable";
/// The built-in kubelet pauses, because another kubelet uses the runtime.
pub const PAUSED_FOR_KUBELET: &str = "PausedForKubelet";
/// Mounts of probeshim do not reach the runtime.
pub const MOUNTS_UNREACHABLE: &str = "MountsUnreachable";
/// A probeshim annotation of a pod is invalid.
pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
/// A specification of pods or probes is invalid.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// A source of pods or probes, such as the API server, does not respond or refuses the request.
pub const SPEC_SOURCE_UNAVAILABLE: &str = "SpecSourceUnavailable";
/// A specification is no longer invalid, or its source is available.
pub const SPEC_RESOLVED: &str = "SpecResolved";
/// The runtime responds.
pub const RUNTIME_READY: &str = "RuntimeReady";
/// The runtime does not respond, or its event stream has ended.
pub const RUNTIME_UNAVAILABLE: &str = "RuntimeUnavailable";
/// An ExecSync has not been answered although its timeout is over.
pub const EXEC_SYNC_OVERDUE: &str = "ExecSyncOverdue";
/// An overdue ExecSync has ended.
pub const EXEC_SYNC_ENDED: &str = "ExecSyncEnded";
/// The command of an ExecSync has exited, and the call has not been answered.
pub const EXEC_SYNC_UNANSWERED: &str = "ExecSyncUnanswered";
/// The command of an ExecSync was killed at its timeout, and the call has not been answered.
pub const EXEC_SYNC_TIMED_OUT: &str = "ExecSyncTimedOut";
/// An unanswered ExecSync was answered.
pub const EXEC_SYNC_ANSWERED: &str = "ExecSyncAnswered";
/// A process still runs after its ExecSync has ended.
pub const EXEC_PROCESS_LEAKED: &str = "ExecProcessLeaked";
/// A leaked process has exited.
pub const EXEC_PROCESS_EXITED: &str = "ExecProcessExited";
/// Processes that ExecSyncs started are zombies.
pub const EXEC_ZOMBIES: &str = "ExecZombies";
/// The zombies that ExecSyncs left are gone.
pub const EXEC_ZOMBIES_GONE: &str = "ExecZombiesGone";
/// The state cannot be written.
pub const STATE_WRITE_FAILED: &str = "StateWriteFailed";
/// The state is written again.
pub const STATE_WRITE_RECOVERED: &str = "StateWriteRecovered";
/// Calls cannot be recorded on disk.
pub const RECORD_WRITE_FAILED: &str = "RecordWriteFailed";
/// Calls are recorded on disk again.
pub const RECORD_WRITE_RECOVERED: &str = "RecordWriteRecovered";
/// Another process removed the recorded calls.
pub const RECORD_REMOVED: &str = "RecordRemoved";

/// All reasons.
pub const ALL: [&str; 83] = [
    KILLING,
    FAILED_PRE_STOP_HOOK,
    FAILED_POST_START_HOOK,
    CREATED,
    STARTED,
    FAILED,
    BACK_OFF,
    PULLING,
    PULLED,
    ERR_IMAGE_NEVER_PULL,
    INSPECT_FAILED,
    FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET,
    FAILED_MOUNT,
    FAILED_KILL_POD,
    FAILED_CREATE_POD_SAND_BOX,
    SANDBOX_CHANGED,
    DEADLINE_EXCEEDED,
    SYSCTL_FORBIDDEN,
    POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
    POD_OS_NOT_SUPPORTED,
    NODE_AFFINITY,
    NODE_PORTS,
    UNEXPECTED_ADMISSION_ERROR,
    OUT_OF_CPU,
    OUT_OF_MEMORY,
    OUT_OF_EPHEMERAL_STORAGE,
    OUT_OF_PODS,
    OUT_OF_HUGE_PAGES_2MI,
    OUT_OF_HUGE_PAGES_1GI,
    APP_ARMOR,
    UNHEALTHY,
    PROBE_WARNING,
    PROBE_DISCARDED,
    PROBE_PANICKED,
    WOULD_KILL,
    KILL_FAILED,
    KILL_ABORTED,
    KILL_SKIPPED,
    KILL_PREDICTED,
    KILL_UNPREDICTED,
    KILL_NOT_OBSERVED,
    KILL_RATE_LIMITED,
    SELECTOR_MATCHES_NOTHING,
    ENFORCEMENT_MODE_CHANGED,
    FAULT_ACTIVATED,
    FAULT_ENDED,
    PAUSE_BEGAN,
    PAUSE_ENDED,
    SANDBOX_STARTED,
    SANDBOX_STOPPED,
    SANDBOX_REMOVED,
    CONTAINER_CREATED,
    CONTAINER_STARTED,
    CONTAINER_START_FAILED,
    CONTAINER_EXITED,
    CONTAINER_REMOVED,
    CONTAINER_OUT_OF_MEMORY,
    CONTAINER_NOT_READY,
    CONTAINER_READY,
    NOT_RESTARTABLE,
    PAUSED_FOR_KUBELET,
    MOUNTS_UNREACHABLE,
    NETWORK_NOT_READY,
    INVALID_ANNOTATION,
    INVALID_SPEC,
    SPEC_SOURCE_UNAVAILABLE,
    SPEC_RESOLVED,
    RUNTIME_READY,
    RUNTIME_UNAVAILABLE,
    EXEC_SYNC_OVERDUE,
    EXEC_SYNC_ENDED,
    EXEC_SYNC_UNANSWERED,
    EXEC_SYNC_TIMED_OUT,
    EXEC_SYNC_ANSWERED,
    EXEC_PROCESS_LEAKED,
    EXEC_PROCESS_EXITED,
    EXEC_ZOMBIES,
    EXEC_ZOMBIES_GONE,
    STATE_WRITE_FAILED,
    STATE_WRITE_RECOVERED,
    RECORD_WRITE_FAILED,
    RECORD_WRITE_RECOVERED,
    RECORD_REMOVED,
];
