use bytes::{Buf as _, Bytes};
use proptest::prelude::*;

use super::super::hpack::{self, HeaderField};
use super::*;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

fn head(authority: &str) -> Bytes {
    hpack::encode(&[HeaderField::new(":method", "POST"), HeaderField::new(":authority", authority)])
}

/// Scans a connection's bytes in pieces of the given lengths. Returns the passed bytes and whether
/// the scan continues.
fn scan(bytes: &[u8], mut pieces: impl Iterator<Item = usize>) -> (BytesMut, bool) {
    let (mut scanner, mut passed, mut rest) = (HeaderRewriter::default(), BytesMut::new(), bytes);
    while !rest.is_empty() {
        let length = pieces.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        if !scanner.scan(take(&mut rest, length), &mut passed) {
            passed.put_slice(rest);
            return (passed, false);
        }
    }
    (passed, true)
}

fn whole(bytes: &[u8]) -> (BytesMut, bool) {
    scan(bytes, std::iter::empty())
}

/// Returns a preface, settings, a window update, a request with this authority and with data, and
/// another request.
fn connection(authority: &str) -> Vec<u8> {
    [
        PREFACE.to_vec(),
        frame(4, 0, 0, &[]),
        frame(8, 0, 0, &[0, 0, 1, 0]),
        frame(HEADERS, END_HEADERS, 1, &head(authority)),
        frame(0, 1, 1, &[7; 300]),
        frame(HEADERS, END_HEADERS | END_STREAM, 3, &head(authority)),
    ]
    .concat()
}

#[test]
fn a_valid_authority_passes_untouched_and_ends_the_scan() {
    for authority in ["localhost", "example.test:443", "[::1]:80"] {
        let bytes = connection(authority);
        assert_eq!(whole(&bytes), (BytesMut::from(&bytes[..]), false), "{authority}");
    }
}

#[test]
fn a_socket_path_as_authority_is_replaced_in_every_request() {
    for authority in ["/run/a.sock", "%2Frun%2Fa.sock", ""] {
        assert_eq!(
            whole(&connection(authority)),
            (BytesMut::from(&connection("localhost")[..]), true),
            "{authority}"
        );
    }
}

#[test]
fn bytes_that_are_not_http_2_pass_unchanged_and_end_the_scan() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSX", &[0xff; 64]] {
        assert_eq!(whole(bytes), (BytesMut::from(bytes), false));
    }
}

#[test]
fn a_rewritten_head_may_need_more_frames() {
    let mut fields: Vec<HeaderField> = HpackDecoder::new(MAX_LIST).decode(&head("/run/a.sock")).unwrap();
    fields.push(HeaderField::new("x-long", &"x".repeat(40_000)));
    let block = hpack::encode(&fields);
    let mut bytes = PREFACE.to_vec();
    let parts: Vec<&[u8]> = block.chunks(MAX_FRAME).collect();
    bytes.extend(frame(HEADERS, 0, 1, parts[0]));
    bytes.extend(frame(CONTINUATION, 0, 1, parts[1]));
    bytes.extend(frame(CONTINUATION, END_HEADERS, 1, parts[2]));
    let (passed, _) = whole(&bytes);
    let (mut kinds, mut rest) = (Vec::new(), &passed[PREFACE.len()..]);
    while !rest.is_empty() {
        kinds.push(rest[3]);
        let length = usize::try_from(rest.get_uint(3)).unwrap();
        rest = &rest[HEAD - 3 + length..];
    }
    assert_eq!(kinds, [HEADERS, CONTINUATION, CONTINUATION]);
}

proptest! {
    #[test]
    fn the_output_of_the_rewriter_does_not_depend_on_the_chunks_of_its_input(pieces in prop::collection::vec(1_usize..200, 0..60)) {
        for authority in ["localhost", "/run/a.sock"] {
            let bytes = connection(authority);
            prop_assert_eq!(scan(&bytes, pieces.iter().copied()), whole(&bytes));
        }
    }

    #[test]
    fn bytes_that_are_not_rewritten_are_never_lost(tail: Vec<u8>, pieces in prop::collection::vec(1_usize..40, 0..20)) {
        let bytes = [PREFACE, &tail].concat();
        let (mut scanner, mut passed, mut rest) = (HeaderRewriter::default(), BytesMut::new(), &bytes[..]);
        let mut pieces = pieces.into_iter();
        while !rest.is_empty() && !scanner.mends {
            let length = pieces.next().unwrap_or(usize::MAX).clamp(1, rest.len());
            if !scanner.scan(take(&mut rest, length), &mut passed) {
                break;
            }
        }
        prop_assume!(!scanner.mends);
        scanner.flush_held(&mut passed);
        passed.put_slice(rest);
        prop_assert_eq!(&passed[..], &bytes[..]);
    }
}
