//! Our own calls to the runtime; the clients' calls never come this way.

use std::future::Future;
use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Response, Status};

use super::v1::image_service_client::ImageServiceClient;
use super::v1::runtime_service_client::RuntimeServiceClient;
use crate::socket::SocketPath;

/// The longest answer that is taken, as by the kubelet.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// How long the runtime may take for what is done for pods, as the kubelet's `runtimeRequestTimeout`; twice as long for a sandbox.
pub(crate) const RUNTIME_REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A client of the images of the runtime at `socket`, which connects as [`runtime_client`] does.
#[must_use]
pub fn image_client(socket: &SocketPath) -> ImageServiceClient<Channel> {
    ImageServiceClient::new(lazy_channel(socket)).max_decoding_message_size(MAX_RESPONSE_BYTES)
}

/// A client of the runtime at `socket`, which connects at its first call and again whenever its connection is gone.
#[must_use]
pub fn runtime_client(socket: &SocketPath) -> RuntimeServiceClient<Channel> {
    RuntimeServiceClient::new(lazy_channel(socket)).max_decoding_message_size(MAX_RESPONSE_BYTES)
}

/// A channel to whatever is served at `socket`, which connects at its first call and again whenever its connection is gone.
pub(crate) fn lazy_channel(socket: &SocketPath) -> Channel {
    let socket = socket.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move {
            let connected = UnixStream::connect(socket.as_path()).await.map(TokioIo::new);
            connected.map_err(|error| io::Error::new(error.kind(), format!("{socket}: {error}")))
        }
    });
    // The authority that kubelets since 1.31 send; the connector knows where to go.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// Waits for an answer, no longer than the limit if there is one; one that comes too late is told of as by the kubelet.
pub(crate) async fn with_timeout<T>(
    limit: impl Into<Option<Duration>>,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    let answered = match limit.into() {
        None => answer.await,
        Some(limit) => timeout(limit, answer)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded"))),
    };
    answered.map(Response::into_inner)
}

/// What is gone is no error where it is asked for, or is to go.
pub(crate) fn ignore_not_found<T>(answered: Result<T, Status>) -> Result<Option<T>, Status> {
    match answered {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
