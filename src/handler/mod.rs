//! Probe handlers and lifecycle hooks: makes one attempt by exec, HTTP, TCP or gRPC, as the kubelet's `pkg/probe` and `pkg/kubelet/lifecycle` do.

mod address;
mod dial;
mod driver;
mod exec;
mod executor;
mod grpc;
mod hook;
mod http;
pub(crate) mod meter;
mod tcp;

use crate::manifest::{ContainerSpec, Handler, Probe};
use std::time::Duration;

pub use address::PortError;
#[cfg(test)]
pub(crate) use exec::tests as exec_tests;
pub use executor::{ContainerNames, Executor};
pub(crate) use hook::{HookContext, HookError};

/// The user agent of network probes; the version is that of the kubelet whose behaviour this is.
const USER_AGENT: &str = "kube-probe/1.36";

/// What is kept of an output: the kubelet cuts there.
const MAX_OUTPUT_BYTES: usize = 10 << 10;

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It went well.
    Success(String),
    /// It went well, in a way that somebody should look at.
    Warning(String),
    /// It did not.
    Failure(String),
}

/// Why it is not known what came of an attempt. It counts neither as success nor as failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The runtime did not execute the command, or did not say what came of it.
    #[error("{0}")]
    Exec(String),
    /// The port is none.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The request cannot be made.
    #[error("{0}")]
    Request(String),
    /// The answer began and did not end.
    #[error("{0}")]
    Body(String),
}

/// Where an attempt goes.
#[derive(Clone, Debug)]
pub struct ProbeTarget<'a> {
    /// The container's id.
    pub container_id: &'a str,
    /// What is written of it.
    pub container: &'a ContainerSpec,
    /// The pod's address; empty where it is not known.
    pub pod_ip: &'a str,
}

/// Makes one attempt.
pub async fn attempt(
    probe: &Probe,
    target: &ProbeTarget<'_>,
    names: &ContainerNames,
    executor: &Executor,
) -> Result<ProbeOutcome, ProbeError> {
    let timeout = Duration::from_secs(probe.timeout.into());
    match &probe.handler {
        Handler::Exec(command) => exec::attempt(executor, names, target, command, probe.timeout).await,
        Handler::Http(get) => {
            let port = address::port(&get.port, &target.container.ports)?;
            let host = get.host.as_deref().unwrap_or(target.pod_ip);
            http::attempt(get, host, port, timeout, executor.redacts()).await
        }
        Handler::Tcp(socket) => {
            let port = address::port(&socket.port, &target.container.ports)?;
            let host = socket.host.as_deref().unwrap_or(target.pod_ip);
            Ok(tcp::attempt(host, port, timeout).await)
        }
        Handler::Grpc(health) => Ok(grpc::attempt(health, target.pod_ip, timeout).await),
    }
}

impl ProbeError {
    /// The result that the kubelet tells beside it.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Body(_) => "failure",
            _ => "unknown",
        }
    }
}
