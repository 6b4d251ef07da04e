//! A probe as it is run: every value is checked, every default is filled in.

use std::fmt;

use crate::manifest::source::Source;
use crate::terminal::format;

/// A probe of a container. Seconds and counts are those of Kubernetes: from 0, or 1 where 0 would mean the default, to 2147483647.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What is done at each attempt.
    pub handler: Handler,
    /// Seconds from the container's start to the first attempt.
    pub initial_delay: u32,
    /// Seconds that an attempt may take, from 1.
    pub timeout: u32,
    /// Seconds from one attempt to the next, from 1.
    pub period: u32,
    /// Successes in a row that it takes to be well again, from 1; 1 but for readiness.
    pub success_threshold: u32,
    /// Failures in a row that it takes to have failed, from 1.
    pub failure_threshold: u32,
    /// Seconds that a container which this probe ends has for its own end, from 1; else the pod's count.
    pub termination_grace_period: Option<u32>,
    /// Where it is written.
    pub source: Source,
}

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeType {
    /// The other two wait until it succeeds.
    Startup,
    /// The container gets no traffic while it fails.
    Readiness,
    /// The container is restarted when it fails.
    Liveness,
}

/// What is done at an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// A command is executed in the container, with an `ExecSync`. Never empty.
    Exec(Vec<String>),
    /// A page is asked for.
    Http(HttpGet),
    /// A connection is made.
    Tcp(TcpSocket),
    /// The health service is asked.
    Grpc(GrpcHealth),
}

/// A page that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    /// Path and query; never empty.
    pub path: String,
    /// Where.
    pub port: Port,
    /// A name or address instead of the pod's.
    pub host: Option<String>,
    /// Whether TLS is spoken; whose certificate it is does not matter.
    pub is_https: bool,
    /// Headers in their order, names as they were written.
    pub headers: Vec<(String, String)>,
}

/// A connection that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// Where to.
    pub port: Port,
    /// A name or address instead of the pod's.
    pub host: Option<String>,
}

/// A health service that is asked, without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcHealth {
    /// Where.
    pub port: u16,
    /// Of which service; empty for the server as a whole.
    pub service: String,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// Its number, from 1.
    Number(u16),
    /// Its name among the ports of the container that is probed.
    Name(String),
}

/// What a hook of a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A command is executed in the container. Nothing in it is expanded, and it has no timeout of its own.
    Exec(Vec<String>),
    /// A page is asked for; every answer will do.
    Http(HttpGet),
    /// So many seconds are waited.
    Sleep(u32),
    /// A connection is made. It has not been a handler of hooks for long, and always fails.
    Tcp,
    /// It is written in a way that cannot be read, for this reason.
    Invalid(String),
}

impl ProbeType {
    /// All of them, in the order in which the kubelet takes them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// Those that end a container, in the order in which the kubelet looks at what they say.
    pub const KILLING: [Self; 2] = [Self::Liveness, Self::Startup];

    /// Its name, as annotations and `probeshim calls` have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    /// Its name, as the kubelet's events and metrics have it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }

    /// The name of its field in a container.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Startup => "startupProbe",
            Self::Readiness => "readinessProbe",
            Self::Liveness => "livenessProbe",
        }
    }
}

impl Probe {
    /// Whether it is the same probe, wherever it is written.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        *self == Self { source: self.source, ..other.clone() }
    }
}

impl Handler {
    /// Whether it goes to the pod's address.
    #[must_use]
    pub fn needs_address(&self) -> bool {
        match self {
            Self::Exec(_) => false,
            Self::Http(get) => get.host.is_none(),
            Self::Tcp(socket) => socket.host.is_none(),
            Self::Grpc(_) => true,
        }
    }

    /// The name of its field in a probe.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Http(_) => "httpGet",
            Self::Tcp(_) => "tcpSocket",
            Self::Grpc(_) => "grpc",
        }
    }
}

impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |host: &Option<String>| host.clone().unwrap_or_default();
        match self {
            Self::Exec(command) => write!(f, "exec {}", format::command(command)),
            Self::Http(get) => {
                let scheme = if get.is_https { "https" } else { "http" };
                let slash = if get.path.starts_with('/') { "" } else { "/" };
                write!(f, "GET {scheme}://{}:{}{slash}{}", host(&get.host), get.port, get.path)
            }
            Self::Tcp(socket) => write!(f, "tcp {}:{}", host(&socket.host), socket.port),
            Self::Grpc(health) if health.service.is_empty() => write!(f, "grpc :{}", health.port),
            Self::Grpc(health) => write!(f, "grpc :{} {}", health.port, health.service),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}
