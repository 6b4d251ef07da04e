//! An HTTP/2 connection for one request, which reads frames as Go's clients do: those of the
//! handlers httpGet and grpc (`golang.org/x/net/http2/frame.go`). Errors have Go's texts.
//!
//! Other implementations are stricter than Go in places where servers that work exist: a response
//! may have the header `connection`, two lengths, or many empty frames.

mod connection;
mod error;
mod hpack;
mod huffman;

pub(super) use connection::{ConnectionSettings, FieldBlock, Frame, Http2Connection};
pub(super) use error::{Http2Error, code_name};
pub(super) use hpack::Field;

/// Code of an error without a reason of its own (RFC 9113, section 7).
pub(super) const PROTOCOL_ERROR: u32 = 1;
/// Code of a stream that the server has not processed.
pub(super) const REFUSED_STREAM: u32 = 7;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

/// Number of the stream of the request.
const STREAM: u32 = 1;
