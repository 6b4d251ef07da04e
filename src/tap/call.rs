//! A call as it was seen: what is kept of it, counted and shown.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::cri::Method;
use crate::relay::{Ending, Peer};

/// The longest path that is kept of a call to a method that the interface does not know, in characters.
const LONGEST_PATH: usize = 256;

/// A call that has ended.
#[derive(Debug)]
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
    pub ending: Ending,
    /// Bytes that went up: messages with their gRPC frames.
    pub request_bytes: u64,
    /// Bytes that came down.
    pub response_bytes: u64,
    /// Who called, where the kernel told.
    pub peer: Option<Arc<Peer>>,
    /// The pod that it was about, as far as its messages tell.
    pub pod: Option<Box<Pod>>,
    /// The container that it was about, as far as its messages tell.
    pub container: Option<Box<Container>>,
    /// What was executed, for an ExecSync.
    pub exec: Option<Box<Exec>>,
}

/// The name of what was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodName {
    /// A method of the interface.
    Known(Method),
    /// The path of any other, cut where it is very long.
    Other(Box<str>),
}

/// A pod sandbox, as one call names it. What that call does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The sandbox's id.
    pub id: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The pod's name.
    pub name: Option<String>,
    /// The pod's uid.
    pub uid: Option<String>,
}

/// A container, as one call names it. What that call does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: Option<String>,
    /// Its name in the pod.
    pub name: Option<String>,
    /// How often the container of this name had been created before.
    pub attempt: Option<u32>,
}

/// An ExecSync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The program and its arguments.
    pub command: Vec<String>,
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

impl MethodName {
    /// The name for a request's path.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        match Method::at(path) {
            Some(method) => Self::Known(method),
            None => Self::Other(path.chars().take(LONGEST_PATH).collect()),
        }
    }

    /// The name as a label of metrics, which must not be for the client to choose.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Known(method) => method.name(),
            Self::Other(_) => "other",
        }
    }
}

impl fmt::Display for MethodName {
    /// The bare name of a method of the interface, the path of any other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(method) => f.write_str(method.name()),
            Self::Other(path) => f.write_str(path),
        }
    }
}

impl Call {
    /// The gRPC code, or in small letters why there is none.
    #[must_use]
    pub fn code(&self) -> Cow<'static, str> {
        match self.ending {
            Ending::Answered(Some(code)) if code.name().is_none() => code.to_string().into(),
            _ => self.code_label().into(),
        }
    }

    /// The same as a label of metrics, where codes that gRPC does not define are one.
    #[must_use]
    pub fn code_label(&self) -> &'static str {
        match self.ending {
            Ending::Answered(Some(code)) => code.name().unwrap_or("other"),
            Ending::Answered(None) => "no-status",
            Ending::ClientReset(_) => "client-reset",
            Ending::UpstreamReset(_) => "upstream-reset",
            Ending::Refused => "refused",
            Ending::Lost => "lost",
            Ending::Abandoned => "abandoned",
        }
    }

    /// The memory that it takes, about, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        let path = match &self.method {
            MethodName::Known(_) => 0,
            MethodName::Other(path) => path.len(),
        };
        let pod = self.pod.as_ref().map_or(0, |pod| {
            size_of::<Pod>() + text(&pod.id) + text(&pod.namespace) + text(&pod.name) + text(&pod.uid)
        });
        let container = self
            .container
            .as_ref()
            .map_or(0, |container| size_of::<Container>() + text(&container.id) + text(&container.name));
        let exec = self.exec.as_ref().map_or(0, |exec| {
            let words: usize = exec.command.iter().map(|word| size_of::<String>() + word.capacity()).sum();
            size_of::<Exec>() + words
        });
        size_of::<Self>() + path + pod + container + exec
    }
}
