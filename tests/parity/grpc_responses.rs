//! Responses of gRPC servers to a health check, as frames, for the comparison of their readers.

use std::collections::BTreeSet;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::http2_responses::{Http2Response, block, data, frame, head};
use super::responses::Numbers;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Number of mutated responses.
const MUTATIONS: usize = 100;

/// Fields of the head of a response.
const HEAD: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

/// A message with the status SERVING.
const SERVING: &[u8] = &[8, 1];

/// Returns a message with its prefix.
fn message(flag: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[flag], &length[..], bytes].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns a head with more fields, a body, and trailers.
fn response(more: &[(&str, &str)], body: &[u8], trailers: &[(&str, &str)]) -> Vec<u8> {
    [head(&[&HEAD, more].concat(), 0), data(body, 0), head(trailers, END_STREAM)].concat()
}

/// Returns the responses to a health check.
#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn grpc_responses() -> Vec<Http2Response> {
    let mut all = Vec::new();
    let mut add = |name: &str, frames: Vec<Vec<u8>>| all.push(Http2Response::new(name, &frames));
    let good = message(0, SERVING);
    let fine = [("grpc-status", "0")];
    add("serving", vec![response(&[], &good, &fine)]);
    // Messages.
    for (name, bytes) in [
        ("unknown", &[8, 0][..]),
        ("not serving", &[8, 2]),
        ("service unknown", &[8, 3]),
        ("a status that has no name", &[8, 9]),
        ("a negative status", &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ("an empty message", &[]),
        ("a status of more than 32 bits", &[8, 0x81, 0x80, 0x80, 0x80, 0x10]),
        ("two statuses", &[8, 2, 8, 1]),
        ("an unknown field", &[8, 1, 0x12, 2, b'o', b'k']),
        ("a status of another type", &[0x0a, 1, b'x', 8, 1]),
        ("a status of another type only", &[0x0a, 1, b'x']),
        ("a fixed status", &[0x0d, 1, 0, 0, 0]),
        ("a group", &[0x13, 8, 2, 0x14, 8, 1]),
        ("a group without end", &[0x13, 8, 2]),
        ("an end of a group", &[0x14, 8, 1]),
        ("a field number of 0", &[0, 1]),
        ("an unknown wire type", &[0x0e, 1]),
        ("a message that is cut", &[8]),
        ("a length that is too long", &[0x12, 9, b'x']),
        ("no protobuf", b"not protobuf"),
    ] {
        add(name, vec![response(&[], &message(0, bytes), &fine)]);
    }
    add("no message", vec![response(&[], &[], &fine)]);
    add("two messages", vec![response(&[], &[&good[..], &good].concat(), &fine)]);
    add(
        "two messages and an error",
        vec![response(&[], &[&good[..], &good].concat(), &[("grpc-status", "5")])],
    );
    add("a second message that is cut", vec![response(&[], &[&good[..], &good[..3]].concat(), &fine)]);
    add(
        "a second message that is no protobuf",
        vec![response(&[], &[&good[..], &message(0, b"x")].concat(), &fine)],
    );
    add("a prefix that is cut", vec![response(&[], &good[..3], &fine)]);
    add("a payload that is cut", vec![response(&[], &good[..6], &fine)]);
    add("a prefix that is cut and an error", vec![response(&[], &good[..3], &[("grpc-status", "5")])]);
    add(
        "a message in many frames",
        vec![
            head(&HEAD, 0),
            good.iter().flat_map(|byte| data(&[*byte], 0)).collect(),
            head(&fine, END_STREAM),
        ],
    );
    add(
        "empty frames",
        vec![head(&HEAD, 0), data(b"", 0).repeat(1_500), data(&good, 0), head(&fine, END_STREAM)],
    );
    add(
        "a padded message",
        vec![head(&HEAD, 0), frame(0, 8, 1, &[&[3], &good[..], &[0; 3]].concat()), head(&fine, END_STREAM)],
    );
    let large =
        |bytes: usize| message(0, &[&[0x12][..], &varint(bytes), &vec![b'x'; bytes], SERVING].concat());
    let in_frames = |bytes: &[u8]| bytes.chunks(16_000).flat_map(|part| data(part, 0)).collect::<Vec<u8>>();
    add("a message of 40 KiB", vec![head(&HEAD, 0), in_frames(&large(40_000)), head(&fine, END_STREAM)]);
    add("a length above 4 MiB", vec![response(&[], &[0, 0, 0x40, 0, 1], &fine)]);
    add("a length of 4 GiB", vec![response(&[], &[0, 0xff, 0xff, 0xff, 0xff], &fine)]);
    // Encodings.
    for encoding in ["gzip", "identity", "", "deflate", "snappy", "GZIP", "gzip, identity"] {
        let with = [("grpc-encoding", encoding)];
        add(&format!("encoding {encoding:?}, not compressed"), vec![response(&with, &good, &fine)]);
        add(
            &format!("encoding {encoding:?}, compressed"),
            vec![response(&with, &message(1, &gzip(SERVING)), &fine)],
        );
    }
    let gzipped = |bytes: &[u8]| response(&[("grpc-encoding", "gzip")], &message(1, bytes), &fine);
    add("compressed without an encoding", vec![response(&[], &message(1, &gzip(SERVING)), &fine)]);
    add("an unknown flag", vec![response(&[], &message(2, SERVING), &fine)]);
    add("the flag 255", vec![response(&[("grpc-encoding", "gzip")], &message(255, SERVING), &fine)]);
    add("no gzip", vec![gzipped(SERVING)]);
    add("no gzip of ten bytes", vec![gzipped(b"0123456789ab")]);
    add("empty gzip", vec![gzipped(&[])]);
    add("gzip that is cut", vec![gzipped(&gzip(SERVING)[..14])]);
    add("gzip that is cut in its header", vec![gzipped(&gzip(SERVING)[..6])]);
    add("two members of gzip", vec![gzipped(&[gzip(&[8, 2]), gzip(SERVING)].concat())]);
    add("bytes after gzip", vec![gzipped(&[gzip(SERVING), b"more".to_vec()].concat())]);
    let mut wrong = gzip(SERVING);
    let place = wrong.len() - 6;
    wrong[place] ^= 1;
    add("gzip with a wrong checksum", vec![gzipped(&wrong)]);
    add("gzip of 5 MiB", vec![gzipped(&gzip(&vec![0; 5 << 20]))]);
    // Content types and HTTP statuses.
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;charset=utf-8",
        "application/grpc+",
        "application/grpc-web",
        "application/grpcx",
        "Application/gRPC",
        "application/json",
        "text/html",
        "",
    ] {
        let fields = [(":status", "200"), ("content-type", kind)];
        add(
            &format!("content type {kind:?}"),
            vec![head(&fields, 0), data(&good, 0), head(&fine, END_STREAM)],
        );
    }
    add("no content type", vec![head(&[(":status", "200")], 0), data(&good, 0), head(&fine, END_STREAM)]);
    for status in [
        "200", "203", "204", "301", "400", "401", "403", "404", "405", "413", "414", "416", "429", "500",
        "502", "503", "504", "599", "abc", "", "099",
    ] {
        let html = [(":status", status), ("content-type", "text/html")];
        add(&format!("status {status:?} with a page"), vec![head(&html, 0), data(b"<html>", END_STREAM)]);
        let grpc = [(":status", status), HEAD[1]];
        add(
            &format!("status {status:?} with gRPC"),
            vec![head(&grpc, 0), data(&good, 0), head(&fine, END_STREAM)],
        );
    }
    add("no status", vec![head(&[HEAD[1]], 0), data(&good, 0), head(&fine, END_STREAM)]);
    add("no field", vec![head(&[], END_STREAM)]);
    for status in ["100", "103"] {
        add(&format!("interim {status}"), vec![head(&[(":status", status)], 0), response(&[], &good, &fine)]);
        add(&format!("interim {status} at the end"), vec![head(&[(":status", status)], END_STREAM)]);
    }
    // Statuses of the call.
    let only = |fields: &[(&str, &str)]| head(&[&HEAD, fields].concat(), END_STREAM);
    for code in 0..=18 {
        let code = code.to_string();
        add(
            &format!("only trailers with status {code}"),
            vec![only(&[("grpc-status", &code), ("grpc-message", "why")])],
        );
        add(
            &format!("a message and status {code}"),
            vec![response(&[], &good, &[("grpc-status", &code), ("grpc-message", "why")])],
        );
    }
    for status in ["x", "", "-1", "+0", "00", "4294967296", "2147483648", " 0"] {
        add(&format!("the status {status:?}"), vec![response(&[], &good, &[("grpc-status", status)])]);
    }
    add("trailers without a status", vec![response(&[], &good, &[("a", "b")])]);
    add("only trailers without a status", vec![only(&[])]);
    add(
        "two statuses of the call",
        vec![response(&[], &good, &[("grpc-status", "0"), ("grpc-status", "5")])],
    );
    add("a status in the head", vec![response(&[("grpc-status", "5")], &good, &fine)]);
    for text in ["a%20b", "100%", "%zz", "%C3%A9", "%ff", "%", "%4", "caf\u{e9}"] {
        add(&format!("the message {text:?}"), vec![only(&[("grpc-status", "5"), ("grpc-message", text)])]);
    }
    add("data without trailers", vec![head(&HEAD, 0), data(&good, END_STREAM)]);
    add(
        "a head in the middle",
        vec![head(&HEAD, 0), data(&good, 0), head(&[("a", "b")], 0), head(&fine, END_STREAM)],
    );
    add("data before the head", vec![data(&good, 0), head(&HEAD, 0), head(&fine, END_STREAM)]);
    add("data before only trailers", vec![data(&good, 0), only(&fine)]);
    // Metadata.
    for value in ["AAAA", "AAA", "AA==", "A", "A===", "!!!!", ""] {
        add(&format!("binary metadata {value:?}"), vec![response(&[("x-bin", value)], &good, &fine)]);
    }
    add("binary metadata in trailers", vec![response(&[], &good, &[("grpc-status", "0"), ("x-bin", "!")])]);
    // google.rpc.Status: code 5, message "not here"; and code 0.
    let details = |value: &str, status: &str| {
        response(
            &[],
            &good,
            &[("grpc-status", status), ("grpc-message", "why"), ("grpc-status-details-bin", value)],
        )
    };
    add("details with the same code", vec![details("CAUSCG5vdCBoZXJl", "5")]);
    add("details with another code", vec![details("CAUSCG5vdCBoZXJl", "7")]);
    add("details with a code and a success", vec![details("CAUSCG5vdCBoZXJl", "0")]);
    add("details with a message that is no UTF-8", vec![details("CAUSAf8", "5")]);
    add("details with a message that is no UTF-8 and a success", vec![details("CAUSAf8", "0")]);
    add("details that are no protobuf", vec![details("////", "5")]);
    add("details that are no base64", vec![details("!", "5")]);
    add("empty details", vec![details("", "0")]);
    // Fields.
    for (name, field) in [
        ("an upper-case name", ("X-A", "b")),
        ("a value with a control character", ("a", "b\u{1}")),
        ("connection", ("connection", "close")),
        ("te", ("te", "x")),
        ("an unknown pseudo field", (":odd", "x")),
        ("a second status", (":status", "200")),
        ("a long field", ("a", &"x".repeat(10_000))),
    ] {
        add(name, vec![response(&[field], &good, &fine)]);
        add(&format!("{name} in trailers"), vec![response(&[], &good, &[("grpc-status", "0"), field])]);
    }
    // Streams and connections.
    for code in 0..=14_u32 {
        add(&format!("RST_STREAM {code}"), vec![frame(RST_STREAM, 0, 1, &code.to_be_bytes())]);
    }
    add("RST_STREAM after a message", vec![head(&HEAD, 0), data(&good, 0), frame(RST_STREAM, 0, 1, &[0; 4])]);
    add("nothing", vec![]);
    add("a head without an end", vec![head(&HEAD, 0)]);
    add("a message without an end", vec![head(&HEAD, 0), data(&good, 0)]);
    for (name, last, code) in [
        ("GOAWAY for later streams", 1_u32, 0_u32),
        ("GOAWAY with an error for later streams", 1, 2),
        ("GOAWAY with an even stream", 2, 0),
    ] {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        add(
            &format!("{name}, then the response"),
            vec![frame(GOAWAY, 0, 0, &payload), response(&[], &good, &fine)],
        );
        add(name, vec![frame(GOAWAY, 0, 0, &payload)]);
        add(&format!("{name} with a text"), vec![frame(GOAWAY, 0, 0, &[&payload[..], b"bye"].concat())]);
    }
    add("PING", vec![frame(PING, 0, 0, &[7; 8]), response(&[], &good, &fine)]);
    add("PING of a wrong length", vec![frame(PING, 0, 0, &[7; 7])]);
    add("a frame of an unknown type", vec![frame(0x42, 0, 1, b"x"), response(&[], &good, &fine)]);
    add(
        "PUSH_PROMISE",
        vec![
            frame(PUSH_PROMISE, END_HEADERS, 1, &[&2_u32.to_be_bytes()[..], &block(&HEAD)].concat()),
            response(&[], &good, &fine),
        ],
    );
    add("data of an idle stream", vec![frame(0, 0, 3, b"x"), response(&[], &good, &fine)]);
    add(
        "a head of an idle stream",
        vec![frame(HEADERS, END_HEADERS, 3, &block(&HEAD)), response(&[], &good, &fine)],
    );
    add("a continuation of nothing", vec![frame(CONTINUATION, END_HEADERS, 1, b"")]);
    add(
        "a table that grows too large",
        vec![frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe1, 0xff, 0x03, 0x88])],
    );
    add("an acknowledgement", vec![frame(4, 1, 0, b""), frame(4, 1, 0, b""), response(&[], &good, &fine)]);
    add("HTTP/1", vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()]);
    for (number, frames) in mutated(&good).into_iter().enumerate() {
        add(&format!("mutated {number}: {}", frames.escape_ascii()), vec![frames]);
    }
    all
}

fn varint(number: usize) -> Vec<u8> {
    let (mut rest, mut bytes) = (number, Vec::new());
    while rest >= 0x80 {
        bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

/// Returns responses with one or two bits that differ.
fn mutated(good: &[u8]) -> BTreeSet<Vec<u8>> {
    let bases = [
        response(&[("grpc-encoding", "gzip")], good, &[("grpc-status", "0")]),
        response(&[], &message(0, &[8, 2]), &[("grpc-status", "0"), ("grpc-message", "a%20b")]),
        head(&[&HEAD[..], &[("grpc-status", "5"), ("grpc-message", "why")]].concat(), END_STREAM),
    ];
    let mut numbers = Numbers(1793);
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
