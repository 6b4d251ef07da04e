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
use super::grpc_timeout::MAX_GRPC_TIMEOUT;
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
        let request = Self::request(message, timeout);
        let codec = ProstCodec::<DynamicMessage, A>::default();
        let response = grpc.unary(request, PathAndQuery::from_static(method.path()), codec).await;
        response.map(Response::into_inner)
    }

    /// Returns a request with the time that the runtime is given. A longer time than gRPC has a
    /// header for, which the file of a capture may have, becomes the longest one.
    pub(crate) fn request(message: FieldMessage, timeout: Option<Duration>) -> Request<DynamicMessage> {
        let mut request = Request::new(message.into_dynamic());
        if let Some(timeout) = timeout {
            request.set_timeout(timeout.min(MAX_GRPC_TIMEOUT));
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::MessageSide;

    #[test]
    fn a_timeout_that_grpc_cannot_express_is_sent_as_the_longest_one() {
        let method = Method::from_name("Version").unwrap();
        for (timeout, header) in [(Duration::from_secs(2), "2000000u"), (Duration::MAX, "99999999H")] {
            let message = FieldMessage::decode(method, MessageSide::Request, &[]).unwrap();
            let request = FieldClient::request(message, Some(timeout));
            assert_eq!(request.metadata().get("grpc-timeout").unwrap(), header);
        }
    }
}
