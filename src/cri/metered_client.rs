//! Counts internal calls, so that the load that they put on the runtime is visible in a metric.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tonic::body::Body;
use tonic::transport::{Channel, Error};
use tower::Service;

use super::client::{MAX_RESPONSE_BYTES, lazy_channel};
use super::method::MethodName;
use super::status::Code;
use super::v1::runtime_service_client::RuntimeServiceClient;
use crate::socket::SocketPath;

/// A client whose calls are counted as internal calls.
pub type MeteredRuntimeClient = RuntimeServiceClient<CountingService>;

/// A connection to the runtime for internal calls, and their counter. Clones share both.
#[derive(Clone, Debug)]
pub struct MeteredChannel {
    socket: SocketPath,
    channel: Channel,
    calls: Family<CallLabels, Counter>,
}

/// A channel that counts a call when the head of its response is received.
#[derive(Clone, Debug)]
pub struct CountingService {
    channel: Channel,
    calls: Family<CallLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    code: &'static str,
}

impl MeteredChannel {
    /// Creates a channel to `socket`. It connects at its first call, and again after its connection
    /// is lost.
    #[must_use]
    pub fn new(socket: &SocketPath) -> Self {
        Self { socket: socket.clone(), channel: lazy_channel(socket), calls: Family::default() }
    }

    /// Creates a sample of the family, because families without samples are not encoded.
    #[cfg(test)]
    pub(crate) fn create_samples(&self) {
        drop(self.calls.get_or_create(&CallLabels { method: "", code: "" }));
    }

    /// Registers the counter.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("internal_calls", "Calls that probeshim made itself", self.calls.clone());
    }

    /// Returns the runtime's socket.
    #[must_use]
    pub fn socket(&self) -> &SocketPath {
        &self.socket
    }

    /// Returns a client over this connection.
    #[must_use]
    pub fn client(&self) -> MeteredRuntimeClient {
        self.counted(self.channel.clone())
    }

    /// Returns a client over a new connection. An existing connection may still be served by a
    /// runtime that is no longer reachable at the socket.
    #[must_use]
    pub fn connect_new(&self) -> MeteredRuntimeClient {
        self.counted(lazy_channel(&self.socket))
    }

    /// Returns the channel of this connection, for services other than the CRI.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    fn counted(&self, channel: Channel) -> MeteredRuntimeClient {
        let counted = CountingService { channel, calls: self.calls.clone() };
        RuntimeServiceClient::new(counted).max_decoding_message_size(MAX_RESPONSE_BYTES)
    }
}

impl Service<Request<Body>> for CountingService {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = MethodName::of_path(request.uri().path()).label();
        let (answer, calls) = (self.channel.call(request), self.calls.clone());
        Box::pin(async move {
            let answer = answer.await?;
            // A successful call has its code in the trailers. Internal calls that get as far as the
            // head succeed, so they are counted as OK.
            let code = Code::from_headers(answer.headers()).unwrap_or(Code::OK);
            calls.get_or_create(&CallLabels { method, code: code.name().unwrap_or("other") }).inc();
            Ok(answer)
        })
    }
}
