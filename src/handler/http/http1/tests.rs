//! Tests of the reader of HTTP/1 responses. The expected results are those of Go 1.26; `make
//! parity` compares more responses with the kubelet's own code.

use std::io::Cursor;

use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use super::*;

const OK: &str = "Content-Length: 2\r\n\r\nok";

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Reads a response that arrives in two parts. Returns its code and body, or Go's text.
async fn read_parts(one: &[u8], other: &[u8]) -> Result<(u16, String), String> {
    let stream = Cursor::new(one.to_vec()).chain(Cursor::new(other.to_vec()));
    let (head, mut body) = match read_response(stream).await {
        Ok(read) => read,
        Err(ReadError::Eof) => return Err("EOF".to_owned()),
        Err(ReadError::Broken(reason)) => return Err(reason),
        Err(ReadError::Io(error) | ReadError::BrokenIo(error)) => return Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    loop {
        match body.next().await {
            Ok(Some(part)) => bytes.extend_from_slice(&part),
            Ok(None) => return Ok((head.status, String::from_utf8_lossy(&bytes).into_owned())),
            Err(BodyError::Invalid(reason)) => return Err(format!("body: {reason}")),
            Err(BodyError::Io(error)) => return Err(format!("body: {error}")),
        }
    }
}

async fn read(response: &str) -> Result<(u16, String), String> {
    read_parts(response.as_bytes(), b"").await
}

async fn assert_accepted(cases: &[(String, u16, &str)]) {
    for (response, status, body) in cases {
        assert_eq!(read(response).await, Ok((*status, (*body).to_owned())), "{response:?}");
    }
}

async fn assert_refused(cases: &[(String, &str)]) {
    for (response, reason) in cases {
        assert_eq!(read(response).await, Err((*reason).to_owned()), "{response:?}");
    }
}

#[tokio::test]
async fn status_lines_are_read_as_by_go() {
    let head = |line: &str| format!("{line}\r\n{OK}");
    assert_accepted(&[
        (head("HTTP/1.1 200 OK"), 200, "ok"),
        (head("HTTP/2.0 200 OK"), 200, "ok"),
        (head("HTTP/9.9 200"), 200, "ok"),
        (head("HTTP/1.1   404 No"), 404, "ok"),
        (head("HTTP/1.1 +20 OK"), 20, "ok"),
        (head("HTTP/1.1 -00 OK"), 0, "ok"),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok".to_owned(), 200, "ok"),
    ])
    .await;
    assert_refused(&[
        (String::new(), "EOF"),
        (head(""), "malformed HTTP response \"\""),
        (head("HTTP/2 200 OK"), "malformed HTTP version \"HTTP/2\""),
        (head("HTTP/1.10 200 OK"), "malformed HTTP version \"HTTP/1.10\""),
        (head("http/1.1 200 OK"), "malformed HTTP version \"http/1.1\""),
        (head("HTTP/1.1 20 OK"), "malformed HTTP status code \"20\""),
        (head("HTTP/1.1 2000 OK"), "malformed HTTP status code \"2000\""),
        (head("HTTP/1.1 -20 OK"), "malformed HTTP status code \"-20\""),
        (head("HTTP/1.1 abc OK"), "malformed HTTP status code \"abc\""),
        (head("nonsense"), "malformed HTTP response \"nonsense\""),
        ("HTTP/1.1 200 OK\r\nA: b".to_owned(), "unexpected EOF"),
    ])
    .await;
}

#[tokio::test]
async fn header_lines_are_read_as_by_go() {
    let with = |line: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\n{OK}");
    assert_accepted(&[
        (with("X-A : b"), 200, "ok"),
        (with("Bad Header: b"), 200, "ok"),
        (with("Content-Length : 1"), 200, "ok"),
        (with("X-A: b\r\n c\r\n\td"), 200, "ok"),
        (with("X-A:caf\u{e9}\t"), 200, "ok"),
        ("HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok".to_owned(), 200, "ok"),
    ])
    .await;
    assert_refused(&[
        (with(": b"), "malformed MIME header line: \": b\""),
        (with("X(A): b"), "malformed MIME header line: \"X(A): b\""),
        (with("X-A: b\u{1}"), "malformed MIME header line: \"X-A: b\\x01\""),
        (with(" X-A: b"), "malformed MIME header initial line: \" X-A: b\""),
        (with("no colon"), "malformed MIME header: missing colon: \"no colon\""),
    ])
    .await;
}

#[tokio::test]
async fn lengths_and_transfer_encodings_are_read_as_by_go() {
    let with = |line: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n{body}");
    let chunks = "2\r\nok\r\n0\r\n\r\n";
    assert_accepted(&[
        (with("A: b", "until the end"), 200, "until the end"),
        (with("Content-Length: 2", "ok and more"), 200, "ok"),
        (with("Content-Length: 2\r\nContent-Length:  2 ", "ok"), 200, "ok"),
        (with("Transfer-Encoding: CHUNKED\r\nContent-Length: 1", chunks), 200, "ok"),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok".to_owned(), 200, "ok"),
        ("HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nok".to_owned(), 204, ""),
    ])
    .await;
    assert_refused(&[
        (with("Content-Length: 5", "ok"), "body: unexpected EOF"),
        (with("Content-Length:", "ok"), "invalid empty Content-Length \"\""),
        (with("Content-Length: +2", "ok"), "bad Content-Length \"+2\""),
        (with("Content-Length: 9223372036854775808", "ok"), "bad Content-Length \"9223372036854775808\""),
        (
            with("Content-Length: 2\r\nContent-Length: 3", "ok"),
            "http: message cannot contain multiple Content-Length headers; got [\"2\" \"3\"]",
        ),
        (with("Transfer-Encoding: gzip", "ok"), "unsupported transfer encoding: \"gzip\""),
        (
            with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunks),
            "too many transfer encodings: [\"chunked\" \"chunked\"]",
        ),
        (
            with("Trailer: Content-Length\r\nTransfer-Encoding: chunked", chunks),
            "bad trailer key \"Content-Length\"",
        ),
    ])
    .await;
}

#[tokio::test]
async fn chunks_and_trailers_are_read_as_by_go() {
    let chunked = |body: &str| format!("{CHUNKED}{body}");
    assert_accepted(&[
        (chunked("0\r\n\r\n"), 200, ""),
        (chunked("2;a=b\r\nok\r\n1 \t\r\n.\r\n0\r\n\r\n"), 200, "ok."),
        (chunked("0000000000000002\r\nok\r\n0\r\nA: b\r\n\r\n"), 200, "ok"),
    ])
    .await;
    assert_refused(&[
        (chunked("2\nok\r\n0\r\n\r\n"), "body: chunked line ends with bare LF"),
        (chunked("2\r\r\nok\r\n0\r\n\r\n"), "body: invalid CR in chunked line"),
        (chunked("00000000000000002\r\nok\r\n0\r\n\r\n"), "body: http chunk length too large"),
        (chunked("0x2\r\nok\r\n0\r\n\r\n"), "body: invalid byte in chunk length"),
        (chunked("\r\nok\r\n0\r\n\r\n"), "body: empty hex number for chunk length"),
        (chunked("2\r\nokay\r\n0\r\n\r\n"), "body: malformed chunked encoding"),
        (chunked("2\r\nok\r\n"), "body: unexpected EOF"),
        (chunked("2\r\nok\r\n0\r\n"), "body: http: unexpected EOF reading trailer"),
        (
            chunked(&format!("2\r\nok\r\n0\r\nA: {}\r\n\r\n", "x".repeat(5000))),
            "body: http: suspiciously long trailer after chunked body",
        ),
        (chunked(&format!("2;{}\r\nok", "x".repeat(5000))), "body: header line too long"),
        (
            chunked(&format!("1;{}\r\no\r\n", "x".repeat(50)).repeat(1000)),
            "body: chunked encoding contains too much non-data",
        ),
    ])
    .await;
}

#[tokio::test]
async fn interim_heads_are_skipped_and_a_switch_of_protocols_is_a_response() {
    let interim = "HTTP/1.1 103 Early\r\nLink: x\r\n\r\n".repeat(3);
    assert_accepted(&[
        (format!("{interim}HTTP/1.1 200 OK\r\n{OK}"), 200, "ok"),
        ("HTTP/1.1 101 Switch\r\nConnection: a, Upgrade\r\nUpgrade: x\r\n\r\nx".to_owned(), 101, "x"),
        ("HTTP/1.1 101 Switch\r\n\r\nx".to_owned(), 101, ""),
    ])
    .await;
    assert_refused(&[(interim, "unexpected EOF")]).await;
}

#[tokio::test]
async fn heads_have_at_most_ten_mebibytes() {
    let head = |bytes: usize| {
        format!("HTTP/1.1 200 OK\r\n{}{OK}", format!("A: {}\r\n", "x".repeat(1019)).repeat(bytes >> 10))
    };
    assert_eq!(read(&head(MAX_HEADER_BYTES - 4096)).await, Ok((200, "ok".to_owned())));
    let refused = "net/http: server response headers exceeded 10485760 bytes; aborted";
    assert_eq!(read(&head(MAX_HEADER_BYTES + 4096)).await, Err(refused.to_owned()));
}

proptest! {
    #[test]
    fn the_parts_in_which_a_response_arrives_change_nothing(
        bytes in proptest::collection::vec(prop_oneof![
            Just(b"\r\n".to_vec()), Just(b"HTTP/1.1 200 OK\r\n".to_vec()), Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
            Just(b"2\r\nok\r\n".to_vec()), Just(b"0\r\n".to_vec()), Just(b" x".to_vec()), any::<[u8; 2]>().prop_map(|two| two.to_vec()),
        ], 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = bytes.concat();
        let cut = cut.index(bytes.len() + 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let [whole, parts] = runtime.block_on(async {
            [read_parts(&bytes, b"").await, read_parts(&bytes[..cut], &bytes[cut..]).await]
        });
        prop_assert_eq!(whole, parts);
    }
}
