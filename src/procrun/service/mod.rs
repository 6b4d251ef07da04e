//! The gRPC services: what comes in goes to the engine, and what it says goes back.

mod client;
mod image;
mod listing;
mod runtime;

use std::io;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use client::Client;

use super::engine::Engine;
use crate::cri::v1::image_service_server::ImageServiceServer;
use crate::cri::v1::runtime_service_server::RuntimeServiceServer;

/// The longest request, as with containerd.
const LONGEST_REQUEST: usize = 16 << 20;

/// A service of the CRI.
#[derive(Clone, Debug)]
struct Service {
    engine: Arc<Engine>,
}

/// Answers calls until `stop` is cancelled, and then cuts those in flight.
pub(super) async fn serve(
    listener: UnixListener,
    engine: Arc<Engine>,
    stop: CancellationToken,
) -> io::Result<()> {
    let service = Service { engine };
    let clients = UnixListenerStream::new(listener).map(|client| client.map(Client::new));
    let runtime = RuntimeServiceServer::new(service.clone()).max_decoding_message_size(LONGEST_REQUEST);
    let images = ImageServiceServer::new(service).max_decoding_message_size(LONGEST_REQUEST);
    let serving = Server::builder().add_service(runtime).add_service(images).serve_with_incoming(clients);
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        ended = serving => ended.map_err(io::Error::other),
    }
}
