//! Calls, as the tap reports them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::cri::MethodName;
use crate::exec_output::exec_timeout;
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallInfo, CallMarks, CallOutcome, DirectMark, Peer};

/// Maximum number of bytes that are kept of the output of a command, and of a status message.
pub(super) const MAX_OUTPUT_BYTES: usize = 1024;

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct Call {
    /// Number of the call: calls are numbered from 1, in the order of their arrival.
    pub id: u64,
    /// Time at which the request headers arrived, by the wall clock.
    pub start: SystemTime,
    /// Time from the request headers to the end of the call.
    pub duration: Duration,
    /// The method.
    pub method: MethodName,
    /// The outcome of the call.
    pub ending: CallOutcome,
    /// Beginning of the gRPC status message, if the runtime returned one with an error.
    pub message: Option<Box<str>>,
    /// Bytes of request messages, with their gRPC frames.
    pub request_bytes: u64,
    /// Bytes of response messages, with their gRPC frames.
    pub response_bytes: u64,
    /// The client, if the kernel reported it.
    pub peer: Option<Arc<Peer>>,
    /// The pod of the call, as far as its messages name it.
    pub pod: Option<Arc<PodRef>>,
    /// The container of the call, as far as its messages name it.
    pub container: Option<Arc<ContainerRef>>,
    /// The image of a call about an image, as the request names it.
    pub image: Option<Box<str>>,
    /// The command, if the call is an ExecSync.
    pub exec: Option<Box<ExecCall>>,
    /// The reason, if the call is an internal StopContainer after a failed probe.
    pub kill: Option<Box<KillRecord>>,
    /// Marks of the call, if probeshim affected it.
    pub marks: Option<Box<CallMarks>>,
}

impl Call {
    /// Returns whether a policy of probeshim affected the call.
    #[must_use]
    pub fn is_affected(&self) -> bool {
        self.marks.as_deref().is_some_and(CallMarks::is_affected)
    }

    /// Returns the result of the attempt to execute the command without the runtime.
    #[must_use]
    pub fn direct(&self) -> Option<&DirectMark> {
        self.marks.as_deref()?.direct.as_ref()
    }

    /// Returns whether probeshim executed the command itself.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.direct(), Some(DirectMark::Executed(_)))
    }
}

/// Reason for which probeshim stopped a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillRecord {
    /// The type of the probe that failed.
    pub probe: String,
    /// The message of the kill, in the kubelet's text.
    pub message: String,
    /// The failure threshold of the probe.
    pub threshold: u32,
    /// The grace period of the container, in seconds.
    pub grace_period: u32,
    /// The last failed attempts, in order.
    pub failures: Vec<ProbeFailure>,
}

/// A probe attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure {
    /// Time of the attempt.
    pub at: SystemTime,
    /// Output or error of the attempt.
    pub message: String,
}

/// The command of an ExecSync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecCall {
    /// The program and its arguments, or the first part of them.
    pub command: Vec<String>,
    /// Whether `command` is only the first part.
    pub truncated: bool,
    /// Timeout in seconds, after which the runtime kills the command; 0 for no timeout.
    pub timeout_seconds: i64,
    /// The result of the command; `None` if the call failed, or if its response was not decoded.
    pub result: Option<ExecResult>,
    /// Beginning of the output, stdout before stderr: of a command that probeshim executed, and of
    /// an attempt of a known probe that exited with another code than 0. The output of other
    /// commands of clients is not kept.
    pub output: Option<Box<str>>,
    /// Whether the prober discarded the attempt of which this is the last try.
    pub is_discarded: bool,
}

/// Result of the command of an ExecSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecResult {
    /// The exit code.
    pub exit_code: i32,
    /// Bytes of stdout, as far as the runtime returned them.
    pub stdout_bytes: usize,
    /// Bytes of stderr, as far as the runtime returned them.
    pub stderr_bytes: usize,
}

impl KillRecord {
    /// Returns the record without the messages of the attempts, which may contain arguments of a
    /// command.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let failures =
            self.failures.iter().map(|failure| ProbeFailure { at: failure.at, message: String::new() });
        Self { failures: failures.collect(), ..self.clone() }
    }
}

impl ExecCall {
    /// Returns the call with only the program of its command, and without output.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let truncated = self.truncated || self.command.len() > 1;
        let command = self.command.iter().take(1).cloned().collect();
        Self { command, truncated, output: None, ..self.clone() }
    }

    /// Returns whether the command wrote more than the output that is kept.
    #[must_use]
    pub fn is_output_cut(&self) -> bool {
        let written = self.result.map_or(0, |result| result.stdout_bytes + result.stderr_bytes);
        self.output.is_some() && written > MAX_OUTPUT_BYTES
    }

    /// Returns the timeout of the request; `None` if it has none.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        exec_timeout(self.timeout_seconds)
    }
}

impl Call {
    /// Creates a call before any of its messages is decoded.
    pub(crate) fn new(info: &CallInfo) -> Self {
        Self {
            id: info.id,
            start: info.start,
            duration: Duration::ZERO,
            method: info.method.clone(),
            ending: CallOutcome::ClientGone,
            message: None,
            request_bytes: 0,
            response_bytes: 0,
            peer: info.peer.clone(),
            pod: None,
            container: None,
            image: None,
            exec: None,
            kill: None,
            marks: None,
        }
    }
}

#[cfg(test)]
impl Call {
    /// Creates a call with these properties, for tests.
    pub(crate) fn sample(id: u64, path: &str, start: SystemTime, duration: Duration) -> Self {
        Self {
            id,
            start,
            duration,
            method: MethodName::of_path(path),
            ending: CallOutcome::Completed(None),
            message: None,
            request_bytes: 0,
            response_bytes: 0,
            peer: None,
            pod: None,
            container: None,
            image: None,
            exec: None,
            kill: None,
            marks: None,
        }
    }
}
