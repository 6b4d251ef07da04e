//! Clients that send a socket path as `:authority`.

use fixtures::http2::runtime::{Call, Connection};
use fixtures::http2::wire::{self, CONTINUATION, HEADERS, Wire, frame};
use fixtures::http2::{Shim, shim};
use probeshim::relay::authority_fix::hpack::{HeaderField, encode};

const OLD: [&str; 4] =
    ["/run/containerd/containerd.sock", "%2Frun%2Fcontainerd%2Fcontainerd.sock", "", "unix:///run/a.sock"];

/// Returns the head of a request as a header block that uses no dynamic table.
fn block(authority: &str, method: &str) -> Vec<u8> {
    encode(
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", authority),
            ("content-type", "application/grpc"),
            ("x-kept", "as it was"),
        ]
        .map(|(name, value)| HeaderField::new(name, value)),
    )
    .to_vec()
}

/// Returns an old client that has sent its preface, and the runtime's end of its connection.
async fn joined(shim: &Shim) -> (Wire, Connection) {
    let runtime = shim.runtime();
    let mut client = Wire(shim.connect().await);
    client.send(wire::HELLO).await;
    (client, runtime.accept().await)
}

fn expect(call: &Call, method: &str) {
    assert_eq!(call.request.uri().path(), method);
    assert_eq!(call.request.uri().authority().unwrap(), "localhost");
    assert_eq!(call.request.headers()["x-kept"], "as it was");
    assert_eq!(call.request.headers().len(), 2);
}

#[tokio::test]
async fn a_request_with_a_socket_path_as_authority_is_served() {
    for authority in OLD {
        let shim = shim();
        let (mut client, mut runtime) = joined(&shim).await;
        let flags = wire::END_HEADERS | wire::END_STREAM;
        for (stream, method) in [(1, "/a.B/First"), (3, "/a.B/Second")] {
            client.send(&frame(HEADERS, flags, stream, &block(authority, method))).await;
            let mut call = runtime.call().await;
            expect(&call, method);
            assert!(call.request.body().is_end_stream());
            call.respond.send_response(fixtures::http2::runtime::ok(), true).unwrap();
            assert_eq!(client.next_of(HEADERS).await.stream, stream);
        }
    }
}

#[tokio::test]
async fn a_body_and_trailers_pass_after_a_rewritten_head() {
    let shim = shim();
    let (mut client, mut runtime) = joined(&shim).await;
    client.send(&frame(HEADERS, wire::END_HEADERS, 1, &block(OLD[0], "/a.B/C"))).await;
    client.send(&frame(wire::DATA, 0, 1, b"ask")).await;
    let trailers = encode(&[HeaderField::new("x-end", "of request")]);
    client.send(&frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 1, &trailers)).await;
    let mut call = runtime.call().await;
    expect(&call, "/a.B/C");
    let (body, trailers) = fixtures::http2::read_all(call.request.body_mut()).await.unwrap();
    assert_eq!((body.as_ref(), trailers.unwrap()["x-end"].as_bytes()), (&b"ask"[..], &b"of request"[..]));
}

#[tokio::test]
async fn padding_priority_and_continuations_of_a_rewritten_head_are_decoded() {
    let shim = shim();
    let (mut client, mut runtime) = joined(&shim).await;
    let whole = block(OLD[0], "/a.B/C");
    let (first, rest) = whole.split_at(10);
    let (second, third) = rest.split_at(1);
    let padded = [&[3], &[0x80, 0, 0, 0, 15][..], first, &[0; 3]].concat();
    let flags = wire::PADDED | wire::PRIORITY | wire::END_STREAM;
    client.send(&frame(HEADERS, flags, 1, &padded)).await;
    client.send(&frame(CONTINUATION, 0, 1, second)).await;
    client.send(&frame(CONTINUATION, 0, 1, b"")).await;
    client.send(&frame(CONTINUATION, wire::END_HEADERS, 1, third)).await;
    let call = runtime.call().await;
    expect(&call, "/a.B/C");
    assert!(call.request.body().is_end_stream());
}

#[tokio::test]
async fn a_rewritten_head_may_arrive_byte_by_byte() {
    let shim = shim();
    let runtime = shim.runtime();
    let mut client = Wire(shim.connect().await);
    let flags = wire::END_HEADERS | wire::END_STREAM;
    for byte in [wire::HELLO, &frame(HEADERS, flags, 1, &block(OLD[1], "/a.B/C"))].concat() {
        client.send(&[byte]).await;
    }
    expect(&runtime.accept().await.call().await, "/a.B/C");
}

#[tokio::test]
async fn heads_compressed_with_the_dynamic_table_are_rewritten_correctly() {
    let shim = shim();
    let (mut client, mut runtime) = joined(&shim).await;
    let flags = wire::END_HEADERS | wire::END_STREAM;
    // POST and http come from the static table. Authority, path, content type and x-kept are added
    // to the dynamic table.
    let first = b"\x83\x86\x41\x05/sock\x44\x06/a.B/1\x5f\x10application/grpc\x40\x06x-kept\x09as it was";
    client.send(&frame(HEADERS, flags, 1, first)).await;
    expect(&runtime.call().await, "/a.B/1");
    // All fields are indexed. The newest entry, 62, is x-kept, and 65 is the authority.
    client.send(&frame(HEADERS, flags, 3, b"\x83\x86\xc1\xc0\xbf\xbe")).await;
    expect(&runtime.call().await, "/a.B/1");
    // The table is emptied and made small. Only the path is added to it again.
    let literals = b"\x0f\x10\x10application/grpc\x00\x06x-kept\x09as it was";
    let third = [&b"\x20\x3f\x3f\x83\x86\x01\x05/sock\x44\x06/a.B/3"[..], literals].concat();
    client.send(&frame(HEADERS, flags, 5, &third)).await;
    expect(&runtime.call().await, "/a.B/3");
    let fourth = [&b"\x83\x86\x01\x05/sock\xbe"[..], literals].concat();
    client.send(&frame(HEADERS, flags, 7, &fourth)).await;
    expect(&runtime.call().await, "/a.B/3");
}

#[tokio::test]
async fn invalid_frames_of_an_old_client_end_its_connection_with_http_2_errors() {
    for (what, bytes, reason) in [
        ("an index beyond the table", frame(HEADERS, wire::END_HEADERS, 3, b"\xfe"), wire::PROTOCOL_ERROR),
        (
            "a block that is cut off",
            frame(HEADERS, wire::END_HEADERS, 3, b"\x40\x06x-ke"),
            wire::PROTOCOL_ERROR,
        ),
        (
            "padding larger than the frame",
            frame(HEADERS, wire::END_HEADERS | wire::PADDED, 3, b"\x09\x83"),
            wire::PROTOCOL_ERROR,
        ),
        (
            "another stream's continuation",
            [frame(HEADERS, 0, 3, b"\x83"), frame(CONTINUATION, wire::END_HEADERS, 5, b"\x86")].concat(),
            wire::PROTOCOL_ERROR,
        ),
        ("headers on stream 0", frame(HEADERS, wire::END_HEADERS, 0, b"\x83"), wire::PROTOCOL_ERROR),
    ] {
        let shim = shim();
        let (mut client, mut runtime) = joined(&shim).await;
        client.send(&frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 1, &block(OLD[0], "/a.B/C"))).await;
        expect(&runtime.call().await, "/a.B/C");
        client.send(&bytes).await;
        assert_eq!(client.ended_with().await, reason, "{what}");
    }
}
