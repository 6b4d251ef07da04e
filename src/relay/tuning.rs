//! The HTTP/2 settings of both sides: a relay must not have limits of its own.

use h2::{client, server};

/// What one stream may have in flight unread, in bytes. Large enough for a message of several MiB to pass without a
/// pause, small enough that a stalled reader holds little.
const STREAM_WINDOW: u32 = 4 << 20;

/// What one connection may have in flight unread: the most that HTTP/2 allows, or one stalled stream would stop the
/// others, which without us it would not.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// Bytes of headers that pass: a gRPC status with details, or a very long message, comes in trailers.
const HEADER_LIST: u32 = 16 << 20;

/// Streams whose reset is remembered or waits for us at once. A client that gives up thousands of calls at once is in
/// trouble, not an attacker.
const RESET_STREAMS: usize = 100_000;

/// No limit on small DATA frames: a stream that is delivered message by message is made of them.
const DATA_FRAMES: usize = usize::MAX;

pub(super) fn server() -> server::Builder {
    let mut builder = server::Builder::new();
    // Counted over the life of a connection, the limit on resets for errors would end a long-lived one.
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_LIST)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(None)
        .data_frame_budget(DATA_FRAMES);
    builder
}

pub(super) fn client() -> client::Builder {
    let mut builder = client::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_LIST)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(None)
        .data_frame_budget(DATA_FRAMES)
        .enable_push(false);
    builder
}
