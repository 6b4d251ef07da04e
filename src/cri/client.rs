//! Clients for internal calls to the runtime. Calls of clients go through the relay instead.

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

/// Maximum size of a response in bytes, as in the kubelet.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Timeout of calls that change pods, as the kubelet's `runtimeRequestTimeout`. It is doubled for
/// sandboxes.
pub(crate) const RUNTIME_REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Creates a client of the image service at `socket`, which connects as [`runtime_client`] does.
#[must_use]
pub fn image_client(socket: &SocketPath) -> ImageServiceClient<Channel> {
    ImageServiceClient::new(lazy_channel(socket)).max_decoding_message_size(MAX_RESPONSE_BYTES)
}

/// Creates a client of the runtime service at `socket`. It connects at its first call, and again
/// after its connection is lost.
#[must_use]
pub fn runtime_client(socket: &SocketPath) -> RuntimeServiceClient<Channel> {
    RuntimeServiceClient::new(lazy_channel(socket)).max_decoding_message_size(MAX_RESPONSE_BYTES)
}

/// Creates a channel to `socket`. It connects at its first call, and again after its connection is
/// lost.
#[must_use]
pub fn lazy_channel(socket: &SocketPath) -> Channel {
    let socket = socket.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move {
            let connected = UnixStream::connect(socket.as_path()).await.map(TokioIo::new);
            connected.map_err(|error| io::Error::new(error.kind(), format!("{socket}: {error}")))
        }
    });
    // Kubelets since 1.31 send this authority. The connector ignores it.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// Waits for a response, at most for `limit` if there is one. The error after the limit is that of
/// the kubelet.
pub(crate) async fn with_timeout<T>(
    limit: impl Into<Option<Duration>>,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    let result = match limit.into() {
        None => call.await,
        Some(limit) => timeout(limit, call)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded"))),
    };
    result.map(Response::into_inner)
}

/// Treats `NOT_FOUND` as success.
pub(crate) fn ignore_not_found<T>(result: Result<T, Status>) -> Result<Option<T>, Status> {
    match result {
        Ok(response) => Ok(Some(response)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
