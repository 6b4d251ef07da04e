//! The response of a call without a stream, which can be given to several clients.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use tonic::Status;

use crate::cri::Code;

/// The response of a call without a stream.
#[derive(Clone, Debug)]
pub struct UnaryResponse {
    /// Headers, with the status if there is no message.
    pub(super) headers: HeaderMap,
    /// The message with its gRPC frame; `None` if the call failed.
    pub(super) message: Option<Bytes>,
    /// Trailers; `None` if the headers are all.
    pub(super) trailers: Option<HeaderMap>,
}

impl UnaryResponse {
    /// Creates a response of a message, with its gRPC frame, and the status OK.
    #[must_use]
    pub fn from_message(message: Bytes) -> Self {
        let trailers = status_headers(&Status::ok(""));
        Self { headers: grpc_headers(), message: Some(message), trailers: Some(trailers) }
    }

    /// Creates a response of a status without a message.
    #[must_use]
    pub fn from_status(status: &Status) -> Self {
        let mut headers = grpc_headers();
        headers.extend(status_headers(status));
        Self { headers, message: None, trailers: None }
    }

    /// Returns the gRPC code, if there is one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        Code::from_headers(self.trailers.as_ref().unwrap_or(&self.headers))
    }

    /// Returns the message with its gRPC frame. The error is the status of a failed call.
    pub fn into_result(self) -> Result<Bytes, Status> {
        let status = Status::from_header_map(self.trailers.as_ref().unwrap_or(&self.headers));
        match (self.message, status) {
            (Some(message), Some(status)) if status.code() == tonic::Code::Ok => Ok(message),
            (_, status) => Err(status.unwrap_or_else(|| Status::unknown("the response has no status"))),
        }
    }
}

/// Returns the headers of a response of gRPC.
fn grpc_headers() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))])
}

/// Returns the headers of a status.
pub(super) fn status_headers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        // tonic encodes every message, so that only the code can be left.
        headers.insert("grpc-status", HeaderValue::from(i32::from(status.code())));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_a_message_or_a_status() {
        let message = Bytes::from_static(b"\0\0\0\0\x01a");
        assert_eq!(UnaryResponse::from_message(message.clone()).into_result().unwrap(), message);
        let status = Status::resource_exhausted("50 % of the node");
        let failed = UnaryResponse::from_status(&status).into_result().unwrap_err();
        assert_eq!((failed.code(), failed.message()), (status.code(), status.message()));
        let cut = UnaryResponse { trailers: None, ..UnaryResponse::from_message(message) };
        assert_eq!(cut.into_result().unwrap_err().code(), tonic::Code::Unknown);
    }
}
