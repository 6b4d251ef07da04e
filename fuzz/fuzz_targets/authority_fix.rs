//! Arbitrary bytes into the adapter for old clients: it must not panic, must not care in which pieces they come, and what
//! it writes for a header block must be a block that reads back.

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
