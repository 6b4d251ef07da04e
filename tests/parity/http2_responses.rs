//! Responses of HTTP/2 servers, as frames, for the comparison of their readers.

use std::collections::BTreeSet;

use super::responses::Numbers;

/// Number of mutated responses.
const MUTATIONS: usize = 200;

/// Types of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Flags of frames.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

/// A response.
pub(crate) struct Http2Response {
    pub(crate) name: String,
    /// The frames that follow the settings of the server.
    pub(crate) frames: Vec<u8>,
    /// Whether the request is sent again until the timeout of the attempt.
    pub(crate) is_sent_again: bool,
}

impl Http2Response {
    pub(crate) fn new(name: &str, frames: &[Vec<u8>]) -> Self {
        let is_sent_again = ["RST_STREAM 1", "RST_STREAM 7", "GOAWAY for this stream"].contains(&name);
        Self { name: name.to_owned(), frames: frames.concat(), is_sent_again }
    }
}

/// Returns a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the empty settings with which a connection begins.
pub(crate) fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

/// Returns headers as literals that are not indexed.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = text.len();
        let prefix = if length < 127 {
            vec![u8::try_from(length).unwrap()]
        } else {
            let (mut rest, mut bytes) = (length - 127, vec![127]);
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
            bytes
        };
        [&prefix[..], text.as_bytes()].concat()
    };
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// Returns a head on the first stream.
pub(crate) fn head(fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, 1, &block(fields))
}

/// Returns a part of the body on the first stream.
pub(crate) fn data(bytes: &[u8], flags: u8) -> Vec<u8> {
    frame(DATA, flags, 1, bytes)
}

fn ok() -> Vec<u8> {
    [head(&[(":status", "200")], 0), data(b"ok", END_STREAM)].concat()
}

/// Returns the responses to an httpGet probe.
#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn http2_responses() -> Vec<Http2Response> {
    let mut all = Vec::new();
    let mut add = |name: &str, frames: Vec<Vec<u8>>| all.push(Http2Response::new(name, &frames));
    add("ok", vec![ok()]);
    add("no body", vec![head(&[(":status", "200")], END_STREAM)]);
    for status in [
        "200", "204", "299", "300", "302", "304", "400", "404", "500", "503", "599", "600", "999", "099",
        "20", "2000", "abc", "", "+20", "-20", " 200", "1000",
    ] {
        add(&format!("status {status:?}"), vec![head(&[(":status", status)], 0), data(b"body", END_STREAM)]);
    }
    for (name, fields) in [
        ("no status", &[("a", "b")][..]),
        ("no field", &[]),
        ("two statuses", &[(":status", "200"), (":status", "500")]),
        ("a status after a field", &[("a", "b"), (":status", "200")]),
        ("a pseudo field of requests", &[(":status", "200"), (":path", "/")]),
        ("an unknown pseudo field", &[(":status", "200"), (":odd", "x")]),
        ("an upper-case name", &[(":status", "200"), ("X-A", "b")]),
        ("a name with a blank", &[(":status", "200"), ("x a", "b")]),
        ("an empty name", &[(":status", "200"), ("", "b")]),
        ("a name with a colon", &[(":status", "200"), ("x:a", "b")]),
        ("a name beyond ASCII", &[(":status", "200"), ("x\u{e9}", "b")]),
        ("a value with a null", &[(":status", "200"), ("a", "b\0c")]),
        ("a value with a line end", &[(":status", "200"), ("a", "b\r\nc")]),
        ("a value with a control character", &[(":status", "200"), ("a", "b\u{1}c")]),
        ("a value with a tab", &[(":status", "200"), ("a", "b\tc")]),
        ("a value beyond ASCII", &[(":status", "200"), ("a", "caf\u{e9}")]),
        ("a value with blanks at its ends", &[(":status", "200"), ("a", " b ")]),
        ("connection", &[(":status", "200"), ("connection", "close")]),
        ("keep-alive", &[(":status", "200"), ("keep-alive", "timeout=1")]),
        ("transfer-encoding", &[(":status", "200"), ("transfer-encoding", "chunked")]),
        ("upgrade", &[(":status", "200"), ("upgrade", "x")]),
        ("te", &[(":status", "200"), ("te", "gzip")]),
        ("a right length", &[(":status", "200"), ("content-length", "4")]),
        ("a length that is too long", &[(":status", "200"), ("content-length", "9")]),
        ("a length that is too short", &[(":status", "200"), ("content-length", "1")]),
        ("a length of 0", &[(":status", "200"), ("content-length", "0")]),
        ("a length that is no number", &[(":status", "200"), ("content-length", "x")]),
        ("a negative length", &[(":status", "200"), ("content-length", "-1")]),
        ("an empty length", &[(":status", "200"), ("content-length", "")]),
        ("equal lengths", &[(":status", "200"), ("content-length", "4"), ("content-length", "4")]),
        ("different lengths", &[(":status", "200"), ("content-length", "4"), ("content-length", "5")]),
        ("an encoding", &[(":status", "200"), ("content-encoding", "gzip")]),
        ("a trailer is announced", &[(":status", "200"), ("trailer", "a")]),
        ("a forbidden trailer is announced", &[(":status", "200"), ("trailer", "content-length")]),
        ("a redirect to another host", &[(":status", "302"), ("location", "http://elsewhere.test/")]),
        ("a redirect without location", &[(":status", "302")]),
        ("a redirect to an invalid URL", &[(":status", "302"), ("location", "http://[x")]),
        ("a redirect to another scheme", &[(":status", "302"), ("location", "ftp://127.0.0.1/")]),
    ] {
        add(name, vec![head(fields, 0), data(b"body", END_STREAM)]);
    }
    for status in ["100", "101", "103", "199"] {
        add(&format!("interim {status}"), vec![head(&[(":status", status)], 0), ok()]);
        add(&format!("interim {status} at the end"), vec![head(&[(":status", status)], END_STREAM)]);
        add(
            &format!("interim {status} with data"),
            vec![head(&[(":status", status)], 0), data(b"x", 0), ok()],
        );
    }
    let begun = || head(&[(":status", "200")], 0);
    add("trailers", vec![begun(), data(b"ok", 0), head(&[("a", "b")], END_STREAM)]);
    add(
        "trailers that do not end",
        vec![begun(), data(b"ok", 0), head(&[("a", "b")], 0), data(b"", END_STREAM)],
    );
    add("trailers with a status", vec![begun(), data(b"ok", 0), head(&[(":status", "200")], END_STREAM)]);
    add("trailers without data", vec![begun(), head(&[("a", "b")], END_STREAM)]);
    add("data after the end", vec![ok(), data(b"more", 0)]);
    add("a head after the end", vec![ok(), head(&[(":status", "500")], END_STREAM)]);
    add("data before the head", vec![data(b"x", 0), ok()]);
    add("nothing", vec![]);
    add("a head without an end", vec![begun()]);
    add("a body without an end", vec![begun(), data(b"begun", 0)]);
    add("padded data", vec![begun(), frame(DATA, PADDED | END_STREAM, 1, b"\x03ok\0\0\0")]);
    add("data with too much padding", vec![begun(), frame(DATA, PADDED | END_STREAM, 1, b"\x09ok")]);
    add("empty padded data", vec![begun(), frame(DATA, PADDED | END_STREAM, 1, b"")]);
    add("many empty frames", vec![begun(), data(b"", 0).repeat(2_000), data(b"ok", END_STREAM)]);
    let fields = block(&[(":status", "200"), ("a", "b")]);
    add(
        "a padded head",
        vec![
            frame(HEADERS, END_HEADERS | PADDED, 1, &[&[2][..], &fields, &[0, 0]].concat()),
            data(b"ok", END_STREAM),
        ],
    );
    add(
        "a head with a priority",
        vec![
            frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, &[&[0, 0, 0, 0, 16][..], &fields].concat()),
            data(b"ok", END_STREAM),
        ],
    );
    add(
        "a head that depends on itself",
        vec![
            frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, &[&[0, 0, 0, 1, 16][..], &fields].concat()),
            data(b"ok", END_STREAM),
        ],
    );
    let (one, other) = fields.split_at(5);
    add(
        "a continued head",
        vec![frame(HEADERS, 0, 1, one), frame(CONTINUATION, END_HEADERS, 1, other), data(b"ok", END_STREAM)],
    );
    add(
        "a continued head with an empty frame",
        vec![
            frame(HEADERS, 0, 1, one),
            frame(CONTINUATION, 0, 1, b""),
            frame(CONTINUATION, END_HEADERS, 1, other),
            data(b"ok", END_STREAM),
        ],
    );
    add(
        "a head that another frame interrupts",
        vec![
            frame(HEADERS, 0, 1, one),
            frame(PING, 0, 0, &[0; 8]),
            frame(CONTINUATION, END_HEADERS, 1, other),
        ],
    );
    add(
        "a head that another stream continues",
        vec![frame(HEADERS, 0, 1, one), frame(CONTINUATION, END_HEADERS, 3, other)],
    );
    add("a continuation of nothing", vec![frame(CONTINUATION, END_HEADERS, 1, &fields)]);
    for code in 0..=14_u32 {
        add(&format!("RST_STREAM {code}"), vec![frame(RST_STREAM, 0, 1, &code.to_be_bytes())]);
    }
    add(
        "RST_STREAM within the body",
        vec![begun(), data(b"x", 0), frame(RST_STREAM, 0, 1, &2_u32.to_be_bytes())],
    );
    add(
        "RST_STREAM without error within the body",
        vec![begun(), data(b"x", 0), frame(RST_STREAM, 0, 1, &[0; 4])],
    );
    add("RST_STREAM after the end", vec![ok(), frame(RST_STREAM, 0, 1, &[0; 4])]);
    add("a short RST_STREAM", vec![frame(RST_STREAM, 0, 1, &[0; 3])]);
    add("RST_STREAM of the connection", vec![frame(RST_STREAM, 0, 0, &[0; 4])]);
    for (name, last, code) in [
        ("GOAWAY for this stream", 0_u32, 0_u32),
        ("GOAWAY for later ones", 1, 0),
        ("GOAWAY with an error", 0, 2),
        ("GOAWAY with an error for later ones", 1, 2),
    ] {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        add(name, vec![frame(GOAWAY, 0, 0, &payload)]);
        // A response after a GOAWAY that excludes its stream races with it in Go.
        if last > 0 {
            add(&format!("{name}, then the response"), vec![frame(GOAWAY, 0, 0, &payload), ok()]);
        }
    }
    for (name, id, value) in [
        ("push is enabled", 2_u16, 1_u32),
        ("push has the value 2", 2, 2),
        ("the window is too large", 4, u32::MAX),
        ("the window is 0", 4, 0),
        ("frames are too small", 5, 1),
        ("frames are too large", 5, 1 << 24),
        ("no streams are allowed", 3, 0),
        ("an unknown setting", 0xF0, 1),
        ("the table is empty", 1, 0),
    ] {
        let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        add(&format!("SETTINGS: {name}"), vec![frame(SETTINGS, 0, 0, &payload), ok()]);
    }
    add("SETTINGS of a stream", vec![frame(SETTINGS, 0, 1, b""), ok()]);
    add("SETTINGS of a wrong length", vec![frame(SETTINGS, 0, 0, b"12345"), ok()]);
    add("an acknowledgement with a payload", vec![frame(SETTINGS, ACK, 0, &[0; 6]), ok()]);
    add("an acknowledgement", vec![frame(SETTINGS, ACK, 0, b""), ok()]);
    add("two acknowledgements", vec![frame(SETTINGS, ACK, 0, b"").repeat(2), ok()]);
    add("PING", vec![frame(PING, 0, 0, &[7; 8]), ok()]);
    add("PING of a wrong length", vec![frame(PING, 0, 0, &[7; 7]), ok()]);
    add("PING of a stream", vec![frame(PING, 0, 1, &[7; 8]), ok()]);
    add("an unexpected PING acknowledgement", vec![frame(PING, ACK, 0, &[7; 8]), ok()]);
    for (name, stream, increment) in [
        ("0 for the connection", 0, 0_u32),
        ("0 for the stream", 1, 0),
        ("too much for the connection", 0, 0x7fff_ffff),
        // Too much for the stream: the kubelet's client (golang.org/x/net v0.49) waits for itself
        // forever (`processWindowUpdate`).
        ("1", 1, 1),
    ] {
        add(
            &format!("WINDOW_UPDATE of {name}"),
            vec![frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes()), ok()],
        );
    }
    add("PRIORITY", vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]), ok()]);
    add("PRIORITY of a wrong length", vec![frame(PRIORITY, 0, 1, &[0; 4]), ok()]);
    add("a frame of an unknown type", vec![frame(0x42, 0xff, 1, b"odd"), ok()]);
    add(
        "PUSH_PROMISE",
        vec![
            frame(
                PUSH_PROMISE,
                END_HEADERS,
                1,
                &[
                    &2_u32.to_be_bytes()[..],
                    &block(&[(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "a")]),
                ]
                .concat(),
            ),
            ok(),
        ],
    );
    add("data of an idle stream", vec![frame(DATA, 0, 3, b"x"), ok()]);
    add("a head of an idle stream", vec![frame(HEADERS, END_HEADERS, 3, &fields), ok()]);
    add("a head of a stream of the server", vec![frame(HEADERS, END_HEADERS, 2, &fields), ok()]);
    add("data of the connection", vec![frame(DATA, 0, 0, b"x"), ok()]);
    add("a frame that is too long", vec![begun(), frame(DATA, END_STREAM, 1, &[b'x'; 20_000])]);
    add(
        "a body beyond what is kept",
        vec![begun(), data(&[b'x'; 16_000], 0), data(&[b'x'; 16_000], END_STREAM)],
    );
    add(
        "a name from beyond the table",
        vec![frame(HEADERS, END_HEADERS, 1, &[0xff, 0x80, 0x01]), data(b"ok", END_STREAM)],
    );
    add("an index of 0", vec![frame(HEADERS, END_HEADERS, 1, &[0x80]), data(b"ok", END_STREAM)]);
    add("an indexed status", vec![frame(HEADERS, END_HEADERS, 1, &[0x88]), data(b"ok", END_STREAM)]);
    add(
        "a table that grows too large",
        vec![frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe1, 0xff, 0x03, 0x88]), data(b"ok", END_STREAM)],
    );
    add(
        "a head that is cut",
        vec![frame(HEADERS, END_HEADERS, 1, &fields[..fields.len() - 1]), data(b"ok", END_STREAM)],
    );
    add(
        "invalid Huffman code",
        vec![frame(HEADERS, END_HEADERS, 1, &[0x88, 0x00, 0x81, 0xff, 0x01, b'b']), data(b"ok", END_STREAM)],
    );
    let long = "x".repeat(15_000);
    let long = frame(HEADERS, 0, 1, &block(&[(":status", "200"), ("a", &long)]));
    let more = frame(CONTINUATION, 0, 1, &block(&[("a", &"x".repeat(15_000))]));
    let end = || [frame(CONTINUATION, END_HEADERS, 1, b""), data(b"ok", END_STREAM)].concat();
    add("a head of 1 MiB", vec![long.clone(), more.repeat(69), end()]);
    add("a head of 11 MiB", vec![long, more.repeat(770), end()]);
    add("the client's preface", vec![b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), ok()]);
    for (number, frames) in mutated().into_iter().enumerate() {
        add(&format!("mutated {number}: {}", frames.escape_ascii()), vec![frames]);
    }
    add("HTTP/1", vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()]);
    all
}

/// Returns responses with one or two bytes that differ.
fn mutated() -> BTreeSet<Vec<u8>> {
    let begun = || head(&[(":status", "200"), ("a", "b"), ("content-length", "2")], 0);
    let bases = [
        [begun(), data(b"ok", 0), head(&[("a", "b")], END_STREAM)].concat(),
        [
            head(&[(":status", "103"), ("link", "x")], 0),
            head(&[(":status", "503")], 0),
            data(b"busy", END_STREAM),
        ]
        .concat(),
        [
            frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]),
            frame(PING, 0, 0, &[7; 8]),
            begun(),
            data(b"ok", END_STREAM),
        ]
        .concat(),
    ];
    let mut numbers = Numbers(9113);
    let mut all = BTreeSet::new();
    while all.len() < MUTATIONS {
        let mut frames = bases[numbers.below(bases.len())].clone();
        for _ in 0..=numbers.below(2) {
            let place = numbers.below(frames.len());
            frames[place] ^= 1 << numbers.below(8);
        }
        all.insert(frames);
    }
    all
}
