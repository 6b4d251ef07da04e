//! Events of the processes in containers.

use std::time::SystemTime;

use prost::Message;
use prost_types::{Any, Timestamp};

use super::v1;

/// Namespace of the CRI's containers in containerd.
const NAMESPACE: &str = "k8s.io";

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
        /// PID of the process.
        pid: u32,
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
                    TaskEvent::Exit { container, pid, status }
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

impl From<&TimestampedEvent> for v1::Envelope {
    /// Encodes an event as containerd publishes it, in the namespace of the CRI.
    fn from(timestamped: &TimestampedEvent) -> Self {
        let timestamp = Timestamp::from(timestamped.at);
        let exit = |container: &str, id: &str, pid, status| {
            let (container_id, id) = (container.to_owned(), id.to_owned());
            write(
                "TaskExit",
                &v1::TaskExit { container_id, id, pid, exit_status: status, exited_at: Some(timestamp) },
            )
        };
        let (topic, event) = match &timestamped.event {
            TaskEvent::Started { container, pid } => (
                "/tasks/start",
                write("TaskStart", &v1::TaskStart { container_id: container.clone(), pid: *pid }),
            ),
            TaskEvent::ExecAdded { container, exec } => {
                let (container_id, exec_id) = (container.clone(), exec.clone());
                ("/tasks/exec-added", write("TaskExecAdded", &v1::TaskExecAdded { container_id, exec_id }))
            }
            TaskEvent::ExecStarted { container, exec, pid } => {
                let (container_id, exec_id) = (container.clone(), exec.clone());
                (
                    "/tasks/exec-started",
                    write("TaskExecStarted", &v1::TaskExecStarted { container_id, exec_id, pid: *pid }),
                )
            }
            TaskEvent::ExecExited { container, exec, pid, status } => {
                ("/tasks/exit", exit(container, exec, *pid, *status))
            }
            TaskEvent::Exit { container, pid, status } => {
                ("/tasks/exit", exit(container, container, *pid, *status))
            }
            TaskEvent::OutOfMemory { container } => {
                ("/tasks/oom", write("TaskOOM", &v1::TaskOom { container_id: container.clone() }))
            }
        };
        Self {
            timestamp: Some(timestamp),
            namespace: NAMESPACE.to_owned(),
            topic: topic.to_owned(),
            event: Some(event),
        }
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

/// Encodes a message with the name of its type, as containerd names it.
fn write(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("containerd.events.{name}"), value: message.encode_to_vec() }
}

fn time(timestamp: Timestamp) -> Option<SystemTime> {
    SystemTime::try_from(timestamp).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn each_event_is_read_as_it_was_written() {
        let (container, exec) = ("c0ffee".to_owned(), "e0".to_owned());
        let at = UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789);
        for event in [
            TaskEvent::Started { container: container.clone(), pid: 7 },
            TaskEvent::ExecAdded { container: container.clone(), exec: exec.clone() },
            TaskEvent::ExecStarted { container: container.clone(), exec: exec.clone(), pid: 8 },
            TaskEvent::ExecExited { container: container.clone(), exec, pid: 8, status: 137 },
            TaskEvent::Exit { container: container.clone(), pid: 7, status: 3 },
            TaskEvent::OutOfMemory { container },
        ] {
            let event = TimestampedEvent { at, event };
            assert_eq!(TimestampedEvent::from_any((&event).into()), Some(event));
        }
    }
}
