//! Malformed HTTP/2 of a client ends its stream or connection with an error code of RFC 9113.

use fixtures::http2::wire::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, HELLO, PADDED, REQUEST,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire, frame, word,
};
use tokio::io::AsyncWriteExt as _;

use super::Besieged;

const PRIORITY_FRAME: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;

const PROTOCOL_ERROR: u32 = wire::PROTOCOL_ERROR;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = wire::FRAME_SIZE_ERROR;

/// Code for a frame that h2 cannot decode. RFC 9113 requires `FRAME_SIZE_ERROR` for a wrong length
/// and `COMPRESSION_ERROR` for an invalid HPACK block.
const UNDECODABLE: u32 = PROTOCOL_ERROR;

/// Code of h2 for a frame on a stream that has ended. RFC 9113 requires `STREAM_CLOSED`.
const AFTER_THE_END: u32 = PROTOCOL_ERROR;

/// The relay's reaction to a protocol error of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A connection error: GOAWAY with this code, then the end of the connection.
    GoAway(u32),
    /// A stream error: `RST_STREAM` with this code.
    Reset(u32),
    /// The runtime's answer: the malformed part is ignored.
    Answer,
    /// The end of the connection without an error frame.
    Closed,
}

/// Sends bytes, closes the sending direction if `closes`, and reads until the end.
async fn end_of(stream: tokio::net::UnixStream, bytes: &[u8], closes: bool) -> (Wire, End) {
    let mut wire = Wire(stream);
    // The relay may close the connection while more bytes are sent.
    let _ = wire.0.write_all(bytes).await;
    if closes {
        let _ = wire.0.shutdown().await;
    }
    let end = loop {
        let Some(frame) = wire.next().await else { break End::Closed };
        let code = |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap());
        match frame.kind {
            GOAWAY => {
                let end = End::GoAway(code(4));
                while wire.next().await.is_some() {}
                break end;
            }
            RST_STREAM => break End::Reset(code(0)),
            HEADERS => break End::Answer,
            _ => {}
        }
    };
    (wire, end)
}

/// Returns a request whose body follows.
fn open() -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, REQUEST)
}

/// Returns a request without a body.
fn whole(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, REQUEST)
}

/// Returns a request with `more` in its header block.
fn with(more: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &[REQUEST, more].concat())
}

/// Returns a header field with a literal name, which is not indexed.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// Returns a SETTINGS frame with one setting.
fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &word(value)].concat())
}

/// Sends each case on a new connection, between calls of a well-behaved client.
async fn each_ends_as_told(cases: &[(&str, Vec<u8>, End)], closes: bool) {
    let mut besieged = Besieged::start().await;
    let mut wrong = Vec::new();
    for (what, bytes, expected) in cases {
        let stream = tokio::net::UnixStream::connect(&besieged.shim.socket).await.unwrap();
        let (hostile, end) = end_of(stream, &[HELLO, bytes].concat(), closes).await;
        if end != *expected {
            wrong.push(format!("{what}: {end:?} instead of {expected:?}"));
        }
        // The well-behaved client is served while the hostile connection is open, and after it has
        // ended.
        besieged.serves_bystander().await;
        drop(hostile);
        besieged.serves_bystander().await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    besieged.assert_unharmed().await;
}

#[tokio::test]
async fn malformed_frames_are_errors_of_their_connection_or_stream() {
    let cases = [
        ("DATA on stream 0", frame(DATA, 0, 0, b"x"), End::GoAway(PROTOCOL_ERROR)),
        ("DATA on an idle stream", frame(DATA, 0, 1, b"x"), End::GoAway(PROTOCOL_ERROR)),
        (
            "DATA with more padding than payload",
            [open(), frame(DATA, PADDED, 1, b"\x05abc")].concat(),
            End::GoAway(PROTOCOL_ERROR),
        ),
        (
            "padded DATA without a length of padding",
            [open(), frame(DATA, PADDED, 1, b"")].concat(),
            End::GoAway(UNDECODABLE),
        ),
        (
            "a DATA frame larger than 16 KiB",
            [open(), frame(DATA, 0, 1, &vec![0; (16 << 10) + 1])].concat(),
            End::GoAway(FRAME_SIZE_ERROR),
        ),
        ("PRIORITY on stream 0", frame(PRIORITY_FRAME, 0, 0, &[0, 0, 0, 1, 9]), End::GoAway(PROTOCOL_ERROR)),
        ("PRIORITY of four bytes", frame(PRIORITY_FRAME, 0, 1, &[0; 4]), End::GoAway(UNDECODABLE)),
        (
            "PRIORITY on itself",
            [open(), frame(PRIORITY_FRAME, 0, 1, &[0, 0, 0, 1, 9])].concat(),
            End::Reset(PROTOCOL_ERROR),
        ),
        ("RST_STREAM on stream 0", frame(RST_STREAM, 0, 0, &word(8)), End::GoAway(PROTOCOL_ERROR)),
        ("RST_STREAM on an idle stream", frame(RST_STREAM, 0, 1, &word(8)), End::GoAway(PROTOCOL_ERROR)),
        (
            "RST_STREAM of three bytes",
            [open(), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
            End::GoAway(UNDECODABLE),
        ),
        ("SETTINGS on a stream", frame(SETTINGS, 0, 1, &[]), End::GoAway(PROTOCOL_ERROR)),
        ("SETTINGS of five bytes", frame(SETTINGS, 0, 0, &[0; 5]), End::GoAway(UNDECODABLE)),
        (
            "an acknowledgement of SETTINGS with a payload",
            frame(SETTINGS, ACK, 0, &[0; 6]),
            End::GoAway(UNDECODABLE),
        ),
        ("ENABLE_PUSH of 2", setting(2, 2), End::GoAway(PROTOCOL_ERROR)),
        ("an INITIAL_WINDOW_SIZE of 2^31", setting(4, 1 << 31), End::GoAway(UNDECODABLE)),
        ("a MAX_FRAME_SIZE of 1", setting(5, 1), End::GoAway(PROTOCOL_ERROR)),
        ("a MAX_FRAME_SIZE of 2^24", setting(5, 1 << 24), End::GoAway(PROTOCOL_ERROR)),
        (
            "PUSH_PROMISE",
            [open(), frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x88])].concat(),
            End::GoAway(PROTOCOL_ERROR),
        ),
        ("PING of seven bytes", frame(PING, 0, 0, &[0; 7]), End::GoAway(UNDECODABLE)),
        ("PING on a stream", frame(PING, 0, 1, &[0; 8]), End::GoAway(PROTOCOL_ERROR)),
        ("GOAWAY on a stream", frame(GOAWAY, 0, 1, &[0; 8]), End::GoAway(PROTOCOL_ERROR)),
        ("GOAWAY of seven bytes", frame(GOAWAY, 0, 0, &[0; 7]), End::GoAway(UNDECODABLE)),
        (
            "WINDOW_UPDATE by 0 of the connection",
            frame(WINDOW_UPDATE, 0, 0, &word(0)),
            End::GoAway(PROTOCOL_ERROR),
        ),
        (
            "WINDOW_UPDATE by 0 of a stream",
            [open(), frame(WINDOW_UPDATE, 0, 1, &word(0))].concat(),
            End::GoAway(PROTOCOL_ERROR),
        ),
        (
            "WINDOW_UPDATE beyond 2^31 of the connection",
            frame(WINDOW_UPDATE, 0, 0, &word((1 << 31) - 1)),
            End::GoAway(FLOW_CONTROL_ERROR),
        ),
        (
            "WINDOW_UPDATE beyond 2^31 of a stream",
            [open(), frame(WINDOW_UPDATE, 0, 1, &word((1 << 31) - 1))].concat(),
            End::Reset(FLOW_CONTROL_ERROR),
        ),
        ("WINDOW_UPDATE of three bytes", frame(WINDOW_UPDATE, 0, 0, &[0; 3]), End::GoAway(UNDECODABLE)),
        (
            "WINDOW_UPDATE of an idle stream",
            frame(WINDOW_UPDATE, 0, 1, &word(1)),
            End::GoAway(PROTOCOL_ERROR),
        ),
    ];
    each_ends_as_told(&cases, false).await;
}

#[tokio::test]
async fn malformed_streams_and_header_blocks_are_errors_of_their_connection_or_stream() {
    let cases = [
        ("an even stream id", whole(2), End::GoAway(PROTOCOL_ERROR)),
        ("a stream id below an earlier one", [whole(5), whole(3)].concat(), End::GoAway(PROTOCOL_ERROR)),
        ("HEADERS after END_STREAM", [whole(1), whole(1)].concat(), End::GoAway(AFTER_THE_END)),
        ("DATA after END_STREAM", [whole(1), frame(DATA, 0, 1, b"x")].concat(), End::GoAway(AFTER_THE_END)),
        (
            "HEADERS that depend on themselves",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM | wire::PRIORITY,
                1,
                &[&[0, 0, 0, 1, 9], REQUEST].concat(),
            ),
            End::Reset(PROTOCOL_ERROR),
        ),
        (
            "CONTINUATION after END_HEADERS",
            [open(), frame(CONTINUATION, END_HEADERS, 1, b"\x83")].concat(),
            End::GoAway(PROTOCOL_ERROR),
        ),
        (
            "CONTINUATION of another stream",
            [frame(HEADERS, 0, 1, REQUEST), frame(CONTINUATION, END_HEADERS, 3, b"")].concat(),
            End::GoAway(PROTOCOL_ERROR),
        ),
        (
            "SETTINGS inside a header block",
            [frame(HEADERS, 0, 1, REQUEST), frame(SETTINGS, 0, 0, &[])].concat(),
            End::GoAway(PROTOCOL_ERROR),
        ),
        (
            "a frame of an unknown type inside a header block",
            [frame(HEADERS, 0, 1, REQUEST), frame(0xfa, 0, 0, b"x")].concat(),
            End::GoAway(PROTOCOL_ERROR),
        ),
        ("HPACK index 0", with(b"\x80"), End::GoAway(UNDECODABLE)),
        ("HPACK index beyond the table", with(b"\xff\x20"), End::GoAway(UNDECODABLE)),
        (
            "HPACK table larger than agreed",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[b"\x3f\xe1\xff\x3f", REQUEST].concat()),
            End::GoAway(UNDECODABLE),
        ),
        ("HPACK table update after a field", with(b"\x20"), End::GoAway(UNDECODABLE)),
        ("Huffman code without an end", with(b"\x00\x81\xff\x81\xff"), End::GoAway(UNDECODABLE)),
        ("a literal longer than its block", with(b"\x00\x7fshort"), End::GoAway(UNDECODABLE)),
        (
            "no :method",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &REQUEST[1..]),
            End::Reset(PROTOCOL_ERROR),
        ),
        ("no :path", frame(HEADERS, END_HEADERS | END_STREAM, 1, &REQUEST[..13]), End::Reset(PROTOCOL_ERROR)),
        ("two :path", with(b"\x84"), End::Reset(PROTOCOL_ERROR)),
        (
            ":path after a header",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &[&REQUEST[..13], &field("a", "b"), b"\x84"].concat(),
            ),
            End::Reset(PROTOCOL_ERROR),
        ),
        (":status in a request", with(b"\x88"), End::Reset(PROTOCOL_ERROR)),
        ("an unknown pseudo-header", with(&field(":hostile", "x")), End::GoAway(UNDECODABLE)),
        ("an uppercase name", with(&field("Hostile", "x")), End::GoAway(UNDECODABLE)),
        ("a name with a line break", with(&field("hos\ntile", "x")), End::GoAway(UNDECODABLE)),
        ("a value with a line break", with(&field("hostile", "x\r\ny: z")), End::GoAway(UNDECODABLE)),
        ("connection: close", with(&field("connection", "close")), End::Reset(PROTOCOL_ERROR)),
        (
            "transfer-encoding: chunked",
            with(&field("transfer-encoding", "chunked")),
            End::Reset(PROTOCOL_ERROR),
        ),
        ("te: gzip", with(&field("te", "gzip")), End::Reset(PROTOCOL_ERROR)),
        (
            "trailers that do not end the stream",
            [open(), frame(HEADERS, END_HEADERS, 1, &field("a", "b"))].concat(),
            End::Reset(PROTOCOL_ERROR),
        ),
        ("pseudo-headers in trailers", [open(), whole(1)].concat(), End::Answer),
        (
            "a content-length of 5 without a body",
            with(&field("content-length", "5")),
            End::Reset(PROTOCOL_ERROR),
        ),
        (
            "two values of content-length",
            with(&[field("content-length", "0"), field("content-length", "5")].concat()),
            End::Reset(PROTOCOL_ERROR),
        ),
    ];
    each_ends_as_told(&cases, false).await;
}

#[tokio::test]
async fn truncated_frames_end_with_their_connection() {
    let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, REQUEST);
    let cases = [
        ("half a frame's head", request[..5].to_vec(), End::Closed),
        ("half a frame", request[..20].to_vec(), End::Closed),
        ("a header block without an end", frame(HEADERS, 0, 1, REQUEST), End::Closed),
        ("a body without an end", open(), End::Closed),
    ];
    each_ends_as_told(&cases, true).await;
}

#[tokio::test]
async fn a_connection_without_the_http_2_preface_is_closed() {
    let client_hello =
        [&b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03"[..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, 0]]
            .concat();
    let mut besieged = Besieged::start().await;
    for (what, bytes, closes) in [
        ("another second half of the preface", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec(), false),
        ("the preface of HTTP/2 in lower case", HELLO.to_ascii_lowercase(), false),
        (
            "a whole request of HTTP/1.1",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx".to_vec(),
            false,
        ),
        ("a ClientHello of TLS", client_hello, false),
        ("half a preface", HELLO[..12].to_vec(), true),
        ("nothing at all", Vec::new(), true),
    ] {
        let mut stream = tokio::net::UnixStream::connect(&besieged.shim.socket).await.unwrap();
        let _ = stream.write_all(&bytes).await;
        if closes {
            let _ = stream.shutdown().await;
        }
        let mut hostile = Wire(stream);
        while let Some(frame) = hostile.next().await {
            assert_ne!(frame.kind, HEADERS, "{what}: an answer without a request");
        }
        besieged.serves_bystander().await;
    }
    besieged.assert_unharmed().await;
}
