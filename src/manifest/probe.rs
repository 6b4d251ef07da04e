//! Probes and hooks, with all values validated and all defaults filled in.

use std::fmt;

use crate::manifest::source::Source;
use crate::terminal::format;

/// A probe of a container. Seconds and counts have the range of Kubernetes: up to 2147483647, from
/// 0, or from 1 where 0 stands for the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Handler of each attempt.
    pub handler: Handler,
    /// Delay in seconds between the start of the container and the first attempt.
    pub initial_delay: u32,
    /// Timeout of an attempt in seconds, from 1.
    pub timeout: u32,
    /// Period of the attempts in seconds, from 1.
    pub period: u32,
    /// Number of successes in a row after which a failed probe succeeds, from 1. Only readiness
    /// probes have other values than 1.
    pub success_threshold: u32,
    /// Number of failures in a row after which the probe fails, from 1.
    pub failure_threshold: u32,
    /// Grace period in seconds of a container that this probe kills, from 1; `None` for the grace
    /// period of the pod.
    pub termination_grace_period: Option<u32>,
    /// Source of the probe.
    pub source: Source,
}

impl Probe {
    /// Number of failures in a row after which a probe fails, if it sets no failureThreshold
    /// (`core/v1/defaults.go`: `SetDefaults_Probe`).
    pub const DEFAULT_FAILURE_THRESHOLD: u32 = 3;
}

/// Type of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeType {
    /// A startup probe. The other probes of the container begin when it has succeeded.
    Startup,
    /// A readiness probe. The container gets no traffic while the probe fails.
    Readiness,
    /// A liveness probe. A failure of the probe restarts the container.
    Liveness,
}

/// Mechanism of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Executes a command in the container with an `ExecSync`. The command is never empty.
    Exec(Vec<String>),
    /// Sends an HTTP GET request.
    Http(HttpGet),
    /// Opens a TCP connection.
    Tcp(TcpSocket),
    /// Calls the gRPC health service.
    Grpc(GrpcHealth),
    /// Has a field that this version does not know, and is not run.
    NotUnderstood(NotUnderstood),
}

/// A handler of a newer kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood {
    /// Name of the handler's field in a probe.
    pub handler: &'static str,
    /// Name of the field that is not known.
    pub field: String,
}

impl NotUnderstood {
    /// Returns the path of the unknown field in the probe, such as `grpc.mode`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.handler, self.field)
    }
}

/// HTTP GET request of a probe or hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    /// Path and query. They are never empty.
    pub path: String,
    /// Port of the server.
    pub port: Port,
    /// Host name or address; `None` for the address of the pod.
    pub host: Option<String>,
    /// Whether the request uses TLS. The certificate of the server is not verified.
    pub is_https: bool,
    /// Headers in their order, with names as written.
    pub headers: Vec<(String, String)>,
}

/// TCP connection of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// Port of the server.
    pub port: Port,
    /// Host name or address; `None` for the address of the pod.
    pub host: Option<String>,
}

/// Call of the gRPC health service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcHealth {
    /// Port of the server.
    pub port: u16,
    /// Name of the checked service; empty for the server as a whole.
    pub service: String,
    /// Whether the connection has TLS (`mode: TLS`), whose certificate is not verified.
    pub is_tls: bool,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// Number of the port, from 1.
    Number(u16),
    /// Name of a port of the probed container.
    Name(String),
}

/// Action of a hook of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Executes a command in the container. Variables in it are not expanded, and it has no timeout
    /// of its own.
    Exec(Vec<String>),
    /// Sends an HTTP GET request. Every response is a success.
    Http(HttpGet),
    /// Sleeps for this number of seconds.
    Sleep(u32),
    /// The handler `tcpSocket`, which Kubernetes deprecated. It always fails.
    Tcp,
    /// A hook that cannot be read, with the reason.
    Invalid(String),
}

impl ProbeType {
    /// All types, in the order in which the kubelet handles them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// Types that kill a container, in the order in which the kubelet checks their results.
    pub const KILLING: [Self; 2] = [Self::Liveness, Self::Startup];

    /// Returns the name that annotations and `probeshim calls` use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    /// Returns the name that events and metrics of the kubelet use.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }

    /// Returns the name of the field in a container.
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
    /// Returns whether both probes are the same except for their source.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        *self == Self { source: self.source, ..other.clone() }
    }
}

impl Handler {
    /// Returns whether the handler connects to the address of the pod.
    #[must_use]
    pub fn needs_address(&self) -> bool {
        match self {
            Self::Exec(_) | Self::NotUnderstood(_) => false,
            Self::Http(get) => get.host.is_none(),
            Self::Tcp(socket) => socket.host.is_none(),
            Self::Grpc(_) => true,
        }
    }

    /// Returns the name of the field in a probe.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Http(_) => "httpGet",
            Self::Tcp(_) => "tcpSocket",
            Self::Grpc(_) => "grpc",
            Self::NotUnderstood(unknown) => unknown.handler,
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
            Self::NotUnderstood(unknown) => {
                write!(f, "{} with the field {}, which is not understood", unknown.handler, unknown.field)
            }
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
