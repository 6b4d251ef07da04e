//! Events about pods, containers, calls and the runtime: their reasons and messages.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::events::{Event, EventType};
use crate::execsync::{StuckExec, StuckKind};
use crate::kubelet;
use crate::prober::{self, ContainerEventKind, GlobalEvent, KillLimit};
use crate::terminal::format;
use crate::inventory::{Change, Container, Inventory, RuntimeInfo, Sandbox};

impl Event {
    /// The event of a change of the inventory; `None` for an update that is not worth an event.
    #[must_use]
    pub fn from_change(change: &Change, world: &Inventory) -> Option<Self> {
        match change {
            Change::SandboxStarted(sandbox) => {
                let addresses = match sandbox.addresses.as_slice() {
                    [] => String::new(),
                    addresses => format!(" with {}", addresses.join(", ")),
                };
                Some(Self::for_sandbox("SandboxStarted", sandbox, format!("The sandbox runs{addresses}")))
            }
            Change::SandboxStopped(sandbox) => {
                Some(Self::for_sandbox("SandboxStopped", sandbox, "The sandbox has stopped".to_owned()))
            }
            Change::SandboxRemoved(sandbox) => {
                Some(Self::for_sandbox("SandboxRemoved", sandbox, "The sandbox has been removed".to_owned()))
            }
            Change::ContainerCreated(container) => {
                let image = &container.image;
                let message = format!("Created with image {image:?}, attempt {}", attempt(container));
                Some(Self::for_container("ContainerCreated", container, world, message))
            }
            Change::ContainerStarted(container) => {
                Some(Self::for_container("ContainerStarted", container, world, "Runs".to_owned()))
            }
            Change::ContainerExited(container) => {
                let message = match &container.exit {
                    Some((code, reason)) if !reason.is_empty() => {
                        format!("Exited with code {code} ({reason})")
                    }
                    Some((code, _)) => format!("Exited with code {code}"),
                    None => "Exited".to_owned(),
                };
                Some(Self::for_container("ContainerExited", container, world, message))
            }
            Change::ContainerRemoved(container) => {
                Some(Self::for_container("ContainerRemoved", container, world, "Removed".to_owned()))
            }
            Change::SandboxUpdated(_) | Change::ContainerUpdated(_) => None,
        }
    }

    /// The event of the prober about a container.
    #[must_use]
    pub fn from_probe_event(event: prober::ContainerEvent) -> Self {
        let (severity, reason) = match event.what {
            ContainerEventKind::Unhealthy => (EventType::Warning, "Unhealthy"),
            ContainerEventKind::ProbeWarning => (EventType::Warning, "ProbeWarning"),
            ContainerEventKind::Discarded => (EventType::Warning, "ProbeDiscarded"),
            ContainerEventKind::WouldKill => (EventType::Warning, "WouldKill"),
            ContainerEventKind::Killing => (EventType::Normal, "Killing"),
            ContainerEventKind::FailedPreStopHook => (EventType::Warning, "FailedPreStopHook"),
            ContainerEventKind::KillFailed => (EventType::Warning, "KillFailed"),
            ContainerEventKind::KillAborted => (EventType::Normal, "KillAborted"),
            ContainerEventKind::KillSkipped => (EventType::Warning, "KillSkipped"),
            ContainerEventKind::Predicted => (EventType::Normal, "KillPredicted"),
            ContainerEventKind::Unpredicted => (EventType::Warning, "KillUnpredicted"),
            ContainerEventKind::NotObserved => (EventType::Warning, "KillNotObserved"),
            ContainerEventKind::Panicked => (EventType::Warning, "ProbePanicked"),
        };
        Self {
            pod: Some(event.pod),
            container: Some(event.container),
            ..Self::new(severity, reason, event.message)
        }
    }

    /// The event of the built-in kubelet about a pod.
    #[must_use]
    pub fn from_pod_event(event: kubelet::PodEvent) -> Self {
        let severity = if event.is_warning { EventType::Warning } else { EventType::Normal };
        Self {
            pod: Some(event.pod),
            container: event.container,
            ..Self::new(severity, event.reason, event.message)
        }
    }

    /// Playing is paused, because a kubelet uses the runtime.
    #[must_use]
    pub fn paused_for_kubelet() -> Self {
        let message = "A kubelet uses the runtime: probeshim starts and ends nothing until the kubelet has been gone for a minute";
        Self::new(EventType::Warning, "PausedForKubelet", message.to_owned())
    }

    /// Mounts of probeshim do not reach the runtime.
    #[must_use]
    pub fn unreachable_mounts(reason: &str) -> Self {
        let message = format!(
            "Mounts of probeshim do not reach the runtime: {reason}; containers with a subPath are not created, and emptyDirs in memory are on disk"
        );
        Self::new(EventType::Warning, "MountsUnreachable", message)
    }

    /// The event of the prober about no single container.
    #[must_use]
    pub fn from_global_event(event: &GlobalEvent) -> Self {
        match event {
            GlobalEvent::KillRateLimited(KillLimit { count, within }) => {
                let within = format::duration(*within);
                let message = format!(
                    "--max-kills is reached: {count} kills within {within}; further kills are skipped"
                );
                Self::new(EventType::Warning, "KillRateLimited", message)
            }
            GlobalEvent::SelectorUnmatched(selector) => Self::new(
                EventType::Warning,
                "SelectorMatchesNothing",
                format!("--never-kill selector {selector} matches no container on this node"),
            ),
            GlobalEvent::Switched { from, to, by } => {
                let (from, to) = (from.name(), to.name());
                Self::new(
                    EventType::Warning,
                    "EnforcementModeChanged",
                    format!("From {from} to {to}, by {by}"),
                )
            }
        }
    }

    /// An annotation of a pod for probeshim is invalid.
    #[must_use]
    pub fn invalid_annotation(sandbox: &Sandbox, problem: String) -> Self {
        Self { severity: EventType::Warning, ..Self::for_sandbox("InvalidAnnotation", sandbox, problem) }
    }

    /// A specification of probes is invalid.
    #[must_use]
    pub fn invalid_spec(problem: String) -> Self {
        Self::new(EventType::Warning, "InvalidSpec", problem)
    }

    /// The state cannot be written, for a reason; or it can be written again.
    #[must_use]
    pub fn state_write(problem: Option<String>) -> Self {
        if let Some(problem) = problem {
            return Self::new(EventType::Warning, "StateWriteFailed", problem);
        }
        Self::new(EventType::Normal, "StateWriteRecovered", "The state is written again".to_owned())
    }

    /// Calls cannot be recorded on disk.
    #[must_use]
    pub fn journal_write_failed(dir: &Path, reason: &str) -> Self {
        let message = format!(
            "Calls are not recorded in {}: {reason}; probeshim retries, and calls are forwarded as before",
            dir.display()
        );
        Self::new(EventType::Warning, "RecordWriteFailed", message)
    }

    /// Calls are recorded on disk again.
    #[must_use]
    pub fn journal_write_recovered(dir: &Path) -> Self {
        let message = format!("Calls are recorded in {} again", dir.display());
        Self::new(EventType::Normal, "RecordWriteRecovered", message)
    }

    /// The files in which calls are recorded were removed while they were written.
    #[must_use]
    pub fn journal_removed(dir: &Path) -> Self {
        let message =
            format!("Another process removed the records in {}; recording starts again there", dir.display());
        Self::new(EventType::Warning, "RecordRemoved", message)
    }

    /// A specification of probes is no longer invalid.
    #[must_use]
    pub fn spec_resolved(problem: &str) -> Self {
        Self::new(EventType::Normal, "SpecResolved", format!("Resolved: {problem}"))
    }

    /// A container has ended and is not started again, though others are.
    #[must_use]
    pub fn not_restartable(container: &Arc<Container>, world: &Inventory, reason: &str) -> Self {
        let message = format!("The container has ended and is not started again: {reason}");
        Self {
            severity: EventType::Warning,
            ..Self::for_container("NotRestartable", container, world, message)
        }
    }

    /// The kernel killed a process of a container for want of memory.
    #[must_use]
    pub fn oom_killed(container: &Arc<Container>, world: &Inventory) -> Self {
        let message = "The kernel killed a process of the container: its memory was used up".to_owned();
        Self {
            severity: EventType::Warning,
            ..Self::for_container("ContainerOutOfMemory", container, world, message)
        }
    }

    /// The runtime answers, or does not answer any more.
    #[must_use]
    pub fn runtime_condition(runtime: Option<&RuntimeInfo>) -> Self {
        match runtime {
            Some(RuntimeInfo { name, version }) => {
                Self::new(EventType::Normal, "RuntimeReady", format!("{name} {version} answers"))
            }
            None => Self::new(
                EventType::Warning,
                "RuntimeUnavailable",
                "The runtime does not answer, or its events have ended; it is asked until it does".to_owned(),
            ),
        }
    }

    /// Something has been stuck for so long.
    #[must_use]
    pub fn stuck_exec(stuck: &StuckExec, age: Duration) -> Self {
        let reason = match stuck.kind {
            StuckKind::Overdue => "ExecSyncOverdue",
            StuckKind::Unanswered => "ExecSyncUnanswered",
            StuckKind::Leaked => "ExecProcessLeaked",
        };
        let message = stuck.sentence(age);
        Self::for_stuck_exec(stuck, EventType::Warning, reason, message)
    }

    /// Something was stuck for so long, and is not any more.
    #[must_use]
    pub fn no_longer_stuck(stuck: &StuckExec, age: Duration) -> Self {
        let (reason, verb) = match stuck.kind {
            StuckKind::Overdue => ("ExecSyncEnded", "ended"),
            StuckKind::Unanswered => ("ExecSyncAnswered", "was answered"),
            StuckKind::Leaked => ("ExecProcessExited", "exited"),
        };
        let subject = match (stuck.kind, stuck.pid) {
            (StuckKind::Leaked, Some(pid)) => format!("Process {pid} of call {}", stuck.call),
            _ => format!("Call {}", stuck.call),
        };
        let age = format::duration(age);
        Self::for_stuck_exec(stuck, EventType::Normal, reason, format!("{subject} {verb} after {age}"))
    }

    fn for_stuck_exec(stuck: &StuckExec, severity: EventType, reason: &'static str, message: String) -> Self {
        Self {
            pod: stuck.pod.clone(),
            container: stuck.container.clone(),
            ..Self::new(severity, reason, message)
        }
    }

    fn for_sandbox(reason: &'static str, sandbox: &Sandbox, message: String) -> Self {
        Self { pod: Some(sandbox.pod.clone()), ..Self::new(EventType::Normal, reason, message) }
    }

    fn for_container(
        reason: &'static str,
        container: &Container,
        world: &Inventory,
        message: String,
    ) -> Self {
        let sandbox = world.sandbox_of(container);
        Self {
            pod: sandbox.map(|sandbox| sandbox.pod.clone()),
            container: Some(container.container_ref.clone()),
            ..Self::new(EventType::Normal, reason, message)
        }
    }

    fn new(severity: EventType, reason: &'static str, message: String) -> Self {
        Self { time: SystemTime::now(), severity, reason, pod: None, container: None, message, count: 1 }
    }
}

impl StuckExec {
    /// What is wrong, in a sentence.
    #[must_use]
    pub fn sentence(&self, age: Duration) -> String {
        let (call, age) = (self.call, format::duration(age));
        let command = format::command(&self.command);
        let pid = self.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        match self.kind {
            StuckKind::Overdue => {
                format!("Call {call} has not been answered, {age} after its timeout was over: {command}")
            }
            StuckKind::Unanswered => {
                format!("Call {call} has not been answered, {age} after its command exited{pid}: {command}")
            }
            StuckKind::Leaked => {
                format!("A process{pid} still runs {age} after call {call} ended: {command}")
            }
        }
    }
}

fn attempt(container: &Container) -> u32 {
    container.container_ref.attempt.unwrap_or(0)
}
