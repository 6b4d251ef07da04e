//! Events of the processes in containers.

use std::time::SystemTime;

use prost::Message;
use prost_types::Timestamp;

use super::v1;

/// An event, and its time by the wall clock of its publisher, in most cases containerd's shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimestampedEvent {
    /// Time of the event. For an exit, the time at which the process ended.
    pub at: SystemTime,
    /// The event.
    pub event: TaskEvent,
}

/// An event of a process in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// The container's main process was started.
    Started {
        /// ID of the container.
        container: String,
        /// PID of the process.
        pid: u32,
    },
    /// An exec instance was added to the container. It has no process yet.
    ExecAdded {
        /// ID of the container.
        container: String,
        /// ID of the exec instance.
        exec: String,
    },
    /// The process of an exec instance was started.
    ExecStarted {
        /// ID of the container.
        container: String,
        /// ID of the exec instance.
        exec: String,
        /// PID of the process.
        pid: u32,
    },
    /// The process of an exec instance has exited.
    ExecExited {
        /// ID of the container.
        container: String,
        /// ID of the exec instance.
        exec: String,
        /// PID of the process.
        pid: u32,
        /// Exit code, or 128 plus the signal that ended the process.
        status: u32,
    },
    /// The container's main process has exited.
    Exit {
        /// ID of the container.
        container: String,
        /// Exit code, or 128 plus the signal that ended the process.
        status: u32,
    },
    /// The kernel killed a process of the container because the container's memory was used up.
    OutOfMemory {
        /// ID of the container.
        container: String,
    },
}

impl TimestampedEvent {
    /// Decodes an event. Returns `None` if the event is of another kind, or cannot be decoded.
    pub(super) fn from_any(envelope: v1::Envelope) -> Option<Self> {
        let published = envelope.timestamp;
        let event = envelope.event?.value;
        let (at, event) = match envelope.topic.as_str() {
            "/tasks/start" => {
                let v1::TaskStart { container_id, pid } = read(&event)?;
                (published, TaskEvent::Started { container: container_id, pid })
            }
            "/tasks/exec-added" => {
                let v1::TaskExecAdded { container_id, exec_id } = read(&event)?;
                (published, TaskEvent::ExecAdded { container: container_id, exec: exec_id })
            }
            "/tasks/exec-started" => {
                let v1::TaskExecStarted { container_id, exec_id, pid } = read(&event)?;
                (published, TaskEvent::ExecStarted { container: container_id, exec: exec_id, pid })
            }
            "/tasks/exit" => {
                let v1::TaskExit { container_id: container, id: exec, pid, exit_status: status, exited_at } =
                    read(&event)?;
                let event = if exec == container {
                    TaskEvent::Exit { container, status }
                } else {
                    TaskEvent::ExecExited { container, exec, pid, status }
                };
                (exited_at.or(published), event)
            }
            "/tasks/oom" => {
                let v1::TaskOom { container_id } = read(&event)?;
                (published, TaskEvent::OutOfMemory { container: container_id })
            }
            _ => return None,
        };
        Some(Self { at: time(at?)?, event })
    }
}

impl TaskEvent {
    /// Returns the ID of the exec instance, if the event is about one.
    #[must_use]
    pub fn exec(&self) -> Option<&str> {
        match self {
            Self::ExecAdded { exec, .. } | Self::ExecStarted { exec, .. } | Self::ExecExited { exec, .. } => {
                Some(exec)
            }
            Self::Started { .. } | Self::Exit { .. } | Self::OutOfMemory { .. } => None,
        }
    }

    /// Returns the ID of the container.
    #[must_use]
    pub fn container(&self) -> &str {
        match self {
            Self::Started { container, .. }
            | Self::ExecAdded { container, .. }
            | Self::ExecStarted { container, .. }
            | Self::ExecExited { container, .. }
            | Self::Exit { container, .. }
            | Self::OutOfMemory { container } => container,
        }
    }
}

fn read<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

fn time(timestamp: Timestamp) -> Option<SystemTime> {
    SystemTime::try_from(timestamp).ok()
}
