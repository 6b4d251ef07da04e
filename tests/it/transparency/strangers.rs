//! Connections of clients that violate the protocol end as HTTP/2 requires, and other clients are
//! not affected.

use fixtures::http2::client::Client;
use fixtures::http2::runtime::Connection;
use fixtures::http2::wire::{self, HEADERS, RST_STREAM, Wire, frame, word};
use fixtures::http2::{Shim, is_served, shim};
use fixtures::wait::soon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A well-behaved client, which verifies that it is still served.
struct Witness {
    client: Client,
    runtime: Connection,
}

impl Witness {
    async fn of(shim: &Shim) -> (Self, fixtures::http2::runtime::Runtime) {
        let (client, runtime, listener) = shim.joined().await;
        (Self { client, runtime }, listener)
    }

    async fn is_served(&mut self) {
        is_served(&mut self.client, &mut self.runtime).await;
    }
}

/// Reads until the connection ends.
async fn drained(mut stream: tokio::net::UnixStream) {
    // The close of a socket with unread bytes of the client is a reset, which also ends the
    // connection.
    let _ = soon(stream.read_to_end(&mut Vec::new())).await;
}

#[tokio::test]
async fn connections_with_http_1_or_garbage_are_closed() {
    let shim = shim();
    let (mut witness, _listener) = Witness::of(&shim).await;
    for stranger in
        [&b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &[0xff; 4096], b"\x16\x03\x01\x02"]
    {
        let mut stream = shim.connect().await;
        // The relay may close the connection before it has read everything.
        let _ = stream.write_all(stranger).await;
        drained(stream).await;
        witness.is_served().await;
    }
}

#[tokio::test]
async fn an_incomplete_frame_does_not_affect_other_clients() {
    let shim = shim();
    let (mut witness, _listener) = Witness::of(&shim).await;
    let mut waiting = Vec::new();
    for cut in [1, 20, 24, 30, 33, 40] {
        let whole = [wire::HELLO, &frame(HEADERS, wire::END_HEADERS, 1, b"\x83\x86\x84")].concat();
        let mut stream = shim.connect().await;
        stream.write_all(&whole[..cut]).await.unwrap();
        waiting.push(stream);
        witness.is_served().await;
    }
    for stream in waiting {
        drop(stream);
        witness.is_served().await;
    }
}

#[tokio::test]
async fn invalid_frames_end_their_connection_with_http_2_errors() {
    let shim = shim();
    let (mut witness, _listener) = Witness::of(&shim).await;
    for (what, bytes, reason) in [
        ("headers on stream 0", frame(HEADERS, wire::END_HEADERS, 0, b"\x83"), wire::PROTOCOL_ERROR),
        (
            "a continuation of nothing",
            frame(wire::CONTINUATION, wire::END_HEADERS, 1, b"\x83"),
            wire::PROTOCOL_ERROR,
        ),
        (
            "padding larger than the frame",
            frame(HEADERS, wire::END_HEADERS | wire::PADDED, 1, b"\x09\x83"),
            wire::PROTOCOL_ERROR,
        ),
        (
            "another frame inside a header block",
            [frame(HEADERS, 0, 1, b"\x83"), frame(wire::DATA, 0, 1, b"x")].concat(),
            wire::PROTOCOL_ERROR,
        ),
        (
            "a frame that is too large",
            frame(HEADERS, wire::END_HEADERS, 1, &vec![0x83; (16 << 10) + 1]),
            wire::FRAME_SIZE_ERROR,
        ),
        (
            "a header block that is no HPACK",
            frame(HEADERS, wire::END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
            wire::PROTOCOL_ERROR,
        ),
    ] {
        let mut stranger = Wire(shim.connect().await);
        stranger.send(wire::HELLO).await;
        stranger.send(&bytes).await;
        assert_eq!(stranger.ended_with().await, reason, "{what}");
        witness.is_served().await;
    }
}

#[tokio::test]
async fn thousands_of_immediate_resets_do_not_end_the_connection() {
    let shim = shim();
    let (mut witness, listener) = Witness::of(&shim).await;
    let mut bytes = wire::HELLO.to_vec();
    for call in 0..5000 {
        bytes.extend(frame(HEADERS, wire::END_HEADERS, call * 2 + 1, wire::REQUEST));
        bytes.extend(frame(RST_STREAM, 0, call * 2 + 1, &word(wire::CANCEL)));
    }
    bytes.extend(frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 10_001, wire::REQUEST));
    let mut stranger = Wire(shim.connect().await);
    let mut runtime = listener.accept().await;
    stranger.send(&bytes).await;
    // The last call is answered on the same connection. The number of reset calls that reach the
    // upstream depends on timing.
    loop {
        let mut call = runtime.call().await;
        if call.request.body().is_end_stream() {
            call.respond.send_response(fixtures::http2::runtime::ok(), true).unwrap();
            break;
        }
    }
    assert_eq!(stranger.next_of(HEADERS).await.stream, 10_001);
    witness.is_served().await;
}
