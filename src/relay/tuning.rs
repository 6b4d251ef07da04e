//! The HTTP/2 settings of both sides: a relay must not have limits of its own.

use h2::{client, server};

/// What one stream may have in flight unread, in bytes. Large enough for a message of several MiB to pass without a
/// pause, small enough that a stalled reader holds little.
const STREAM_WINDOW: u32 = 4 << 20;

/// What one connection may have in flight unread: the most that HTTP/2 allows, or one stalled stream would stop the
/// others, which without us it would not.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// Bytes of headers that pass: a gRPC status with details, or a very long message, comes in trailers.
pub(super) const HEADER_LIST: u32 = 16 << 20;

/// How many reset streams may be remembered, or wait to be accepted, at a time. A client that gives up thousands of calls
/// at once is in trouble, not an attacker.
const RESET_STREAMS: usize = 100_000;

/// No limit on small DATA frames: a stream that is delivered message by message is made of them.
const DATA_FRAMES: usize = usize::MAX;

/// Sets what the builders of both sides have in common; they share no trait.
macro_rules! without_limits {
    ($builder:expr) => {{
        let mut builder = $builder;
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST)
            .max_concurrent_reset_streams(RESET_STREAMS)
            .max_pending_accept_reset_streams(RESET_STREAMS)
            // It counts over the life of a connection, and would end a long one.
            .max_local_error_reset_streams(None)
            .data_frame_budget(DATA_FRAMES);
        builder
    }};
}

pub(super) fn server() -> server::Builder {
    without_limits!(server::Builder::new())
}

pub(super) fn client() -> client::Builder {
    let mut builder = without_limits!(client::Builder::new());
    builder.enable_push(false);
    builder
}
