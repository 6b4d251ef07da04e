//! The calls that we make ourselves while clients' calls pass, counted: what the runtime has to do for us is no secret.

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

/// A client whose calls are counted as our own.
pub type MeteredRuntimeClient = RuntimeServiceClient<CountingService>;

/// A connection to the runtime for calls of our own, and their count. Copies share both.
#[derive(Clone, Debug)]
pub struct MeteredChannel {
    socket: SocketPath,
    channel: Channel,
    calls: Family<CallLabels, Counter>,
}

/// A channel whose calls are counted when their answer begins.
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
    /// Connects at the first call, and again whenever the connection is gone.
    #[must_use]
    pub fn new(socket: &SocketPath) -> Self {
        Self { socket: socket.clone(), channel: lazy_channel(socket), calls: Family::default() }
    }

    /// Adds the count to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("internal_calls", "Calls that probeshim made itself", self.calls.clone());
    }

    /// Returns the runtime's socket.
    #[must_use]
    pub fn socket(&self) -> &SocketPath {
        &self.socket
    }

    /// A client over this connection.
    #[must_use]
    pub fn client(&self) -> MeteredRuntimeClient {
        self.counted(self.channel.clone())
    }

    /// A client over a new connection: an old one may still be answered by a runtime that nobody can reach any more.
    #[must_use]
    pub fn connect_new(&self) -> MeteredRuntimeClient {
        self.counted(lazy_channel(&self.socket))
    }

    /// This connection, for what is not the CRI.
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
            // A call that goes well has its code at its end; those that we make go well from there on.
            let code = Code::from_headers(answer.headers()).unwrap_or(Code::OK);
            calls.get_or_create(&CallLabels { method, code: code.name().unwrap_or("other") }).inc();
            Ok(answer)
        })
    }
}
