//! Whether the runtime answers.

use std::time::Duration;

use tokio::time::timeout;
use tonic::transport::Channel;

use super::shape;
use crate::cri::runtime_service;
use crate::cri::v1::VersionRequest;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::socket::SocketPath;

/// How long the runtime may take to answer Version and be called ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the runtime for its version, on a connection of our own.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    socket: SocketPath,
    client: RuntimeServiceClient<Channel>,
}

impl Upstream {
    pub(super) fn new(socket: SocketPath) -> Self {
        Self { client: runtime_service(&socket), socket }
    }

    /// How the runtime stands now.
    pub(super) async fn state(&self) -> shape::Upstream {
        let mut client = self.client.clone();
        let asked = timeout(PATIENCE, client.version(VersionRequest { version: "v1".to_owned() })).await;
        let (version, error) = match asked {
            Ok(Ok(answer)) => (Some(answer.into_inner()), None),
            Ok(Err(status)) => (None, Some(reason(&status))),
            Err(_) => (None, Some(format!("no answer to Version within {PATIENCE:?}"))),
        };
        let (runtime, version) =
            version.map(|version| (version.runtime_name, version.runtime_version)).unzip();
        shape::Upstream { socket: self.socket.to_string(), ready: error.is_none(), runtime, version, error }
    }
}

/// What went wrong, down to the system's word for it.
fn reason(status: &tonic::Status) -> String {
    let mut reason = format!("{:?}: {}", status.code(), status.message());
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        reason = format!("{reason}: {error}");
        cause = error.source();
    }
    reason
}
