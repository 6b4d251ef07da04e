//! The HTTP/2 settings of both sides: a relay must not have limits that a client meets which works as it should.

use h2::{client, server};

/// Calls that one client may have in flight. The kubelet has some hundreds on a node that is full, and gRPC clients wait at
/// the limit. Each takes about 4 KB.
pub(super) const MAX_CONCURRENT_STREAMS: u32 = 10_000;

/// Bytes of one request that may lie unread: more than a socket takes, so that a large message passes without a pause.
const REQUEST_WINDOW: u32 = 256 << 10;

/// Bytes of one response that may lie unread. Large enough for a list of thousands of containers to leave the runtime at once.
const RESPONSE_WINDOW: u32 = 4 << 20;

/// Bytes of all requests, or all responses, of one connection that may lie unread: much more than those of one call, or one
/// that is stalled would stop the others.
pub(super) const CONNECTION_WINDOW: u32 = 64 << 20;

/// Bytes that wait to be written to one connection, from which on calls keep what they have. A socket takes about a fifth of it.
pub(super) const MAX_UNWRITTEN_BYTES: usize = 1 << 20;

/// Bytes of headers of a request that pass.
pub(super) const REQUEST_HEADER_LIST: u32 = 1 << 20;

/// Bytes of headers of a response that pass: a gRPC status with details, or a very long message, comes in trailers.
const RESPONSE_HEADER_LIST: u32 = 16 << 20;

/// How many reset streams may be remembered, or wait to be accepted, at a time: more than a client can have open, which may
/// give up all of them at once.
const RESET_STREAMS: usize = 2 * MAX_CONCURRENT_STREAMS as usize;

/// How much of the frames' overhead may lie unread because a client's DATA frames are small: 256 bytes for each. What ends the
/// connection beyond it is 262,144 of them.
const DATA_FRAMES: usize = 64 << 20;

/// Sets what the builders of both sides have in common; they share no trait.
macro_rules! common {
    ($builder:expr) => {{
        let mut builder = $builder;
        builder
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_reset_streams(RESET_STREAMS)
            // It counts over the life of a connection, and would end a long one.
            .max_local_error_reset_streams(None);
        builder
    }};
}

pub(super) fn server() -> server::Builder {
    let mut builder = common!(server::Builder::new());
    builder
        .initial_window_size(REQUEST_WINDOW)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(REQUEST_HEADER_LIST)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .data_frame_budget(DATA_FRAMES);
    builder
}

pub(super) fn client() -> client::Builder {
    let mut builder = common!(client::Builder::new());
    // A stream that is delivered message by message is made of small DATA frames, and a reader may be slow.
    builder
        .initial_window_size(RESPONSE_WINDOW)
        .max_header_list_size(RESPONSE_HEADER_LIST)
        .data_frame_budget(usize::MAX)
        .enable_push(false);
    builder
}
