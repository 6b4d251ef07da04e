//! The gRPC services, which translate between the CRI and the engine.

mod client;
mod image;
mod listing;
mod runtime;
mod stats;
mod task_events;

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
use crate::containerd::EventsServer;
use crate::cri::v1::image_service_server::ImageServiceServer;
use crate::cri::v1::runtime_service_server::RuntimeServiceServer;
use crate::socket::Acceptor;

/// Maximum size of a request, as in containerd.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Maximum number of streams of one connection that are reset before they are accepted. A kubelet
/// that restarts resets all of its streams.
const MAX_PENDING_RESETS: usize = 10_000;

/// Capacity of the queue of accepted connections.
const ACCEPT_QUEUE: usize = 16;

/// Implementation of both services of the CRI, and of containerd's events service.
#[derive(Clone, Debug)]
struct Service {
    engine: Arc<Engine>,
}

/// Answers calls until `stop` is cancelled, and then aborts every connection and the calls in
/// flight on it.
pub(super) async fn serve(
    listener: UnixListener,
    engine: Arc<Engine>,
    stop: CancellationToken,
) -> io::Result<()> {
    let service = Service { engine };
    let runtime = RuntimeServiceServer::new(service.clone()).max_decoding_message_size(MAX_REQUEST_BYTES);
    let events = EventsServer::new(service.clone());
    let images = ImageServiceServer::new(service).max_decoding_message_size(MAX_REQUEST_BYTES);
    let (connections_tx, connections_rx) = mpsc::channel(ACCEPT_QUEUE);
    let conn_stop = stop.clone();
    let mut acceptor = Acceptor::new(listener);
    let accept_task = tokio::spawn(async move {
        loop {
            let client = ClientConn::new(acceptor.accept().await, conn_stop.clone());
            if connections_tx.send(Ok::<_, io::Error>(client)).await.is_err() {
                return;
            }
        }
    });
    let _accept_task = AbortOnDropHandle::new(accept_task);
    let server = Server::builder()
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
        .http2_max_local_error_reset_streams(None)
        .add_service(runtime)
        .add_service(images)
        .add_service(events)
        .serve_with_incoming(ReceiverStream::new(connections_rx));
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        result = server => result.map_err(io::Error::other),
    }
}
