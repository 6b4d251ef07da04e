//! The gRPC services: what comes in goes to the engine, and what it says goes back.

mod client;
mod image;
mod listing;
mod runtime;
mod stats;

use std::io;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;

use client::ClientConn;

use super::engine::Engine;
use crate::cri::v1::image_service_server::ImageServiceServer;
use crate::cri::v1::runtime_service_server::RuntimeServiceServer;
use crate::socket::Acceptor;

/// The longest request, as with containerd.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Calls of one connection that may be given up before they are looked at: a kubelet that restarts gives up all of its own.
const PENDING_RESETS: usize = 10_000;

/// Clients that may wait to be served.
const LISTEN_BACKLOG: usize = 16;

/// A service of the CRI.
#[derive(Clone, Debug)]
struct Service {
    engine: Arc<Engine>,
}

/// Answers calls until `stop` is cancelled, and then ends every connection, with what is in flight on it.
pub(super) async fn serve(
    listener: UnixListener,
    engine: Arc<Engine>,
    stop: CancellationToken,
) -> io::Result<()> {
    let service = Service { engine };
    let runtime = RuntimeServiceServer::new(service.clone()).max_decoding_message_size(MAX_REQUEST_BYTES);
    let images = ImageServiceServer::new(service).max_decoding_message_size(MAX_REQUEST_BYTES);
    let (clients, accepted) = mpsc::channel(LISTEN_BACKLOG);
    let ended = stop.clone();
    let mut acceptor = Acceptor::new(listener);
    let accepting = tokio::spawn(async move {
        loop {
            let client = ClientConn::new(acceptor.accept().await, ended.clone());
            if clients.send(Ok::<_, io::Error>(client)).await.is_err() {
                return;
            }
        }
    });
    let _accepting = AbortOnDropHandle::new(accepting);
    let serving = Server::builder()
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
        .http2_max_local_error_reset_streams(None)
        .add_service(runtime)
        .add_service(images)
        .serve_with_incoming(ReceiverStream::new(accepted));
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        ended = serving => ended.map_err(io::Error::other),
    }
}
