//! Feeds arbitrary bytes to the authority rewriter for old clients. The rewriter must not panic,
//! and its output must not depend on how the input is split. The HPACK encoder's output must decode
//! to the same fields.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use probeshim::relay::authority_fix::HeaderRewriter;
use probeshim::relay::authority_fix::hpack::{HpackDecoder, encode};

fuzz_target!(|input: (Vec<u8>, Vec<u8>, u8)| {
    let (frames, block, cut) = input;
    let bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frames[..]].concat();
    let cut = usize::from(cut).min(bytes.len());
    assert_eq!(scan(&[&bytes]), scan(&[&bytes[..cut], &bytes[cut..]]));

    if let Ok(fields) = HpackDecoder::new(1 << 16).decode(&block) {
        assert_eq!(HpackDecoder::new(1 << 16).decode(&encode(&fields)).as_ref(), Ok(&fields));
    }
});

fn scan(pieces: &[&[u8]]) -> BytesMut {
    let (mut rewriter, mut passed, mut scans) = (HeaderRewriter::default(), BytesMut::new(), true);
    for piece in pieces {
        if scans {
            scans = rewriter.scan(piece, &mut passed);
        } else {
            passed.extend_from_slice(piece);
        }
    }
    if scans {
        rewriter.flush_held(&mut passed);
    }
    passed
}
