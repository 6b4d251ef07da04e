//! HTTP/2 settings of both sides. A client that works correctly must not meet a limit of the relay.

use h2::{client, server};

/// Number of calls that one client may have in flight. On a full node the kubelet has some
/// hundreds, and gRPC clients wait at the limit. Each call takes about 4 KB.
pub(super) const MAX_CONCURRENT_STREAMS: u32 = 10_000;

/// Maximum unread bytes of one request. It is more than a socket takes, so that a large message
/// passes without a pause.
const REQUEST_WINDOW: u32 = 256 << 10;

/// Maximum unread bytes of one response. A list of thousands of containers fits, so that the
/// runtime can send it without a pause.
const RESPONSE_WINDOW: u32 = 4 << 20;

/// Maximum unread bytes of all requests, or of all responses, of one connection. It is much larger
/// than the window of one call, so that a stalled call does not stop the others.
pub(super) const CONNECTION_WINDOW: u32 = 64 << 20;

/// Number of unwritten bytes of one connection above which calls keep their data. A socket takes
/// about a fifth of it.
pub(super) const MAX_UNWRITTEN_BYTES: usize = 1 << 20;

/// Maximum bytes of the headers of a request.
pub(super) const REQUEST_HEADER_LIST: u32 = 1 << 20;

/// Maximum bytes of the headers of a response. A gRPC status with details, or a very long message,
/// is sent in trailers.
const RESPONSE_HEADER_LIST: u32 = 16 << 20;

/// Maximum number of reset streams that are remembered or wait to be accepted. It exceeds the
/// number of streams that a client can have open, because a client may cancel all of them at the
/// same time.
const RESET_STREAMS: usize = 2 * MAX_CONCURRENT_STREAMS as usize;

/// Maximum overhead in bytes of a client's unread DATA frames. Each small frame counts as 256
/// bytes, so that the connection ends beyond 262,144 of them.
const DATA_FRAMES: usize = 64 << 20;

/// Applies the settings of both sides to a builder. The two builders share no trait.
macro_rules! common {
    ($builder:expr) => {{
        let mut builder = $builder;
        builder
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_reset_streams(RESET_STREAMS)
            // The limit counts over the life of a connection, and would end a long one.
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
    // A stream of single messages consists of small DATA frames, and its reader may be slow.
    builder
        .initial_window_size(RESPONSE_WINDOW)
        .max_header_list_size(RESPONSE_HEADER_LIST)
        .data_frame_budget(usize::MAX)
        .enable_push(false);
    builder
}
