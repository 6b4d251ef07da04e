//! What becomes of a process in a container.

use std::time::SystemTime;

use prost::Message;
use prost_types::Timestamp;

use super::v1;

/// An event, and when it happened, by the wall clock of who published it: containerd's shim, in most cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimestampedEvent {
    /// When it happened; for an exit, when the process ended.
    pub at: SystemTime,
    /// What happened.
    pub event: TaskEvent,
}

/// What happened to a process in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// The container's own process runs.
    Started {
        /// The container.
        container: String,
        /// The process.
        pid: u32,
    },
    /// Something is about to be executed in the container; there is no process yet.
    ExecAdded {
        /// The container.
        container: String,
        /// What containerd calls it.
        exec: String,
    },
    /// What is executed runs.
    ExecStarted {
        /// The container.
        container: String,
        /// What containerd calls it.
        exec: String,
        /// The process.
        pid: u32,
    },
    /// What was executed has ended.
    ExecExited {
        /// The container.
        container: String,
        /// What containerd calls it.
        exec: String,
        /// The process.
        pid: u32,
        /// Its exit code; 128 and the signal where one ended it.
        status: u32,
    },
    /// The container's own process has ended.
    Exit {
        /// The container.
        container: String,
        /// Its exit code; 128 and the signal where one ended it.
        status: u32,
    },
    /// The kernel killed a process of the container, because its memory was used up.
    OutOfMemory {
        /// The container.
        container: String,
    },
}

impl TimestampedEvent {
    /// Reads an event; `None` if it is of another kind, or cannot be read.
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
    /// What containerd calls that which is executed, if it is about such a thing.
    #[must_use]
    pub fn exec(&self) -> Option<&str> {
        match self {
            Self::ExecAdded { exec, .. } | Self::ExecStarted { exec, .. } | Self::ExecExited { exec, .. } => {
                Some(exec)
            }
            Self::Started { .. } | Self::Exit { .. } | Self::OutOfMemory { .. } => None,
        }
    }

    /// The container.
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
