//! A call as it was seen: what is kept of it, counted and shown.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::cri::MethodName;
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallInfo, CallOutcome, Peer};

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct Call {
    /// Counts the calls since the start, in the order in which they came, from 1.
    pub id: u64,
    /// When its head came, by the wall clock.
    pub start: SystemTime,
    /// From its head to its end.
    pub duration: Duration,
    /// What was called.
    pub method: MethodName,
    /// How it ended.
    pub ending: CallOutcome,
    /// Bytes that went up: messages with their gRPC frames.
    pub request_bytes: u64,
    /// Bytes that came down.
    pub response_bytes: u64,
    /// Who called, where the kernel told.
    pub peer: Option<Arc<Peer>>,
    /// The pod that it was about, as far as its messages tell.
    pub pod: Option<Arc<PodRef>>,
    /// The container that it was about, as far as its messages tell.
    pub container: Option<Arc<ContainerRef>>,
    /// What was executed, for an ExecSync.
    pub exec: Option<Box<ExecCall>>,
    /// Why we stopped the container, for a StopContainer of our own.
    pub kill: Option<Box<KillRecord>>,
}

/// Why we stopped a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillRecord {
    /// The type of the probe that failed.
    pub probe: String,
    /// What is said of it, in the kubelet's words.
    pub message: String,
    /// Failures in a row that it takes.
    pub threshold: u32,
    /// Seconds that the container was given for its end.
    pub grace_period: u32,
    /// The last attempts that failed, in their order.
    pub failures: Vec<ProbeFailure>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure {
    /// When.
    pub at: SystemTime,
    /// In what way.
    pub message: String,
}

/// An ExecSync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecCall {
    /// The program and its arguments, or the beginning of them.
    pub command: Vec<String>,
    /// Whether that is not all.
    pub truncated: bool,
    /// After how many seconds the runtime kills the command; 0 for never.
    pub timeout_seconds: i64,
    /// How the command ended; `None` where the call failed, or its answer was not decoded.
    pub result: Option<ExecResult>,
}

/// How the command of an ExecSync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecResult {
    /// Its exit code.
    pub exit_code: i32,
    /// Bytes that it wrote to stdout, as far as the runtime passed them on.
    pub stdout_bytes: usize,
    /// Bytes that it wrote to stderr, as far as the runtime passed them on.
    pub stderr_bytes: usize,
}

impl KillRecord {
    /// The same, without what is told of the attempts: that may be in a command's own words.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let failures =
            self.failures.iter().map(|failure| ProbeFailure { at: failure.at, message: String::new() });
        Self { failures: failures.collect(), ..self.clone() }
    }
}

impl ExecCall {
    /// The same, with nothing of the command but the program.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let truncated = self.truncated || self.command.len() > 1;
        Self { command: self.command.iter().take(1).cloned().collect(), truncated, ..self.clone() }
    }

    /// The timeout that the caller asked for; `None` for none.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        u64::try_from(self.timeout_seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }
}

impl Call {
    /// What is known before any message is read.
    pub(crate) fn new(info: &CallInfo) -> Self {
        Self {
            id: info.id,
            start: info.start,
            duration: Duration::ZERO,
            method: info.method.clone(),
            ending: CallOutcome::ClientGone,
            request_bytes: 0,
            response_bytes: 0,
            peer: info.peer.clone(),
            pod: None,
            container: None,
            exec: None,
            kill: None,
        }
    }
}

#[cfg(test)]
impl Call {
    /// A call of which nothing is known but this.
    pub(crate) fn sample(id: u64, path: &str, start: SystemTime, duration: Duration) -> Self {
        Self {
            id,
            start,
            duration,
            method: MethodName::of_path(path),
            ending: CallOutcome::Completed(None),
            request_bytes: 0,
            response_bytes: 0,
            peer: None,
            pod: None,
            container: None,
            exec: None,
            kill: None,
        }
    }
}
