//! Probe handlers and lifecycle hooks: exec, HTTP, TCP and gRPC, as in the kubelet's `pkg/probe`
//! and `pkg/kubelet/lifecycle`.

mod address;
mod dial;
mod exec;
mod executor;
mod grpc;
mod hook;
mod http;
mod http2;
mod interpret;
pub(crate) mod meter;
mod stream;
mod tcp;

use std::time::Duration;

use crate::manifest::{ContainerSpec, Handler, Probe};
use crate::tap::EndedCall;

pub use address::PortError;
#[cfg(test)]
pub(crate) use exec::tests as exec_tests;
pub use executor::{ContainerNames, Executor};
pub(crate) use grpc::interpret_health_response;
pub(crate) use hook::{HookContext, HookError};
pub(crate) use http::interpret_response;

/// User agent of network probes. The version is that of the kubelet whose behaviour is reproduced.
const USER_AGENT: &str = "kube-probe/1.36";

/// Maximum length of an output, in bytes, as in the kubelet.
const MAX_OUTPUT_BYTES: usize = 10 << 10;

/// Outcome of an attempt (kubelet: `pkg/probe`, `Result`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The attempt succeeded, with this output.
    Success(String),
    /// The attempt succeeded, but its output deserves attention.
    Warning(String),
    /// The attempt failed, with this output or message.
    Failure(String),
}

/// Reason for which the outcome of an attempt is unknown. Such an attempt counts neither as success
/// nor as failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The runtime did not run the command, or its response was lost.
    #[error("{0}")]
    Exec(String),
    /// The port is invalid.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The request is invalid.
    #[error("{0}")]
    Request(String),
    /// The response began but did not end.
    #[error("{0}")]
    Body(String),
    /// The handler has a field that this version does not know.
    #[error("the field {0} is not understood, so the probe is not run")]
    NotUnderstood(String),
}

/// A try of an attempt that has ended.
#[derive(Debug)]
pub struct ProbeTry {
    /// The outcome. An error means that the outcome is unknown.
    pub result: Result<ProbeOutcome, ProbeError>,
    /// The ExecSync of an exec handler, if it is recorded. It is reported when it is dropped.
    pub call: Option<EndedCall>,
}

/// Container to which an attempt is directed.
#[derive(Clone, Debug)]
pub struct ProbeTarget<'a> {
    /// ID of the container.
    pub container_id: &'a str,
    /// Specification of the container.
    pub container: &'a ContainerSpec,
    /// Address of the pod; empty if it is not known.
    pub pod_ip: &'a str,
}

/// Tries an attempt once (`prober/prober.go`: `runProbe`).
pub async fn attempt(
    probe: &Probe,
    target: &ProbeTarget<'_>,
    names: &ContainerNames,
    executor: &Executor,
) -> ProbeTry {
    let timeout = Duration::from_secs(probe.timeout.into());
    let ports = &target.container.ports;
    let result = match &probe.handler {
        Handler::Exec(command) => {
            return exec::attempt(executor, names, target, command, probe.timeout).await;
        }
        Handler::Http(get) => match address::port(&get.port, ports) {
            Ok(port) => {
                let host = get.host.as_deref().unwrap_or(target.pod_ip);
                http::attempt(get, host, port, timeout, executor.redacts()).await
            }
            Err(error) => Err(error.into()),
        },
        Handler::Tcp(socket) => match address::port(&socket.port, ports) {
            Ok(port) => {
                let host = socket.host.as_deref().unwrap_or(target.pod_ip);
                Ok(tcp::attempt(host, port, timeout).await)
            }
            Err(error) => Err(error.into()),
        },
        Handler::Grpc(health) => Ok(grpc::attempt(health, target.pod_ip, timeout).await),
        Handler::NotUnderstood(unknown) => Err(ProbeError::NotUnderstood(unknown.path())),
    };
    ProbeTry { result, call: None }
}

impl ProbeError {
    /// Returns the result that the kubelet reports with the error.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Body(_) => "failure",
            _ => "unknown",
        }
    }
}
