//! A client for messages whose method is known at run time only.

use std::time::Duration;

use prost::Message;
use prost_reflect::DynamicMessage;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::client::{MAX_RESPONSE_BYTES, lazy_channel};
use super::fields::FieldMessage;
use super::method::Method;
use crate::socket::SocketPath;

/// Sends messages of any method without a stream. Clones share a connection.
#[derive(Clone, Debug)]
pub(crate) struct FieldClient(Channel);

impl FieldClient {
    /// Creates a client of the runtime at `socket`, which connects at its first call.
    pub(crate) fn new(socket: &SocketPath) -> Self {
        Self(lazy_channel(socket))
    }

    /// Makes a call. `timeout` is the time that the runtime is given.
    pub(crate) async fn call<A: Message + Default + 'static>(
        &self,
        method: Method,
        message: FieldMessage,
        timeout: Option<Duration>,
    ) -> Result<A, Status> {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let mut request = Request::new(message.into_dynamic());
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        let codec = ProstCodec::<DynamicMessage, A>::default();
        let response = grpc.unary(request, PathAndQuery::from_static(method.path()), codec).await;
        response.map(Response::into_inner)
    }
}
