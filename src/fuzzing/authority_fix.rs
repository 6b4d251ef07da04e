//! The first bytes of a client of the relay, in which the authority of old clients is corrected.

use bytes::BytesMut;

use crate::relay::authority_fix::HeaderRewriter;
use crate::relay::authority_fix::hpack::{HpackDecoder, encode};

/// Preface of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of bytes of decoded headers.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// Reads the first byte as a place, and the rest as frames that follow the preface: the output does
/// not depend on a cut of the input at this place. Decodes the rest as a header block as well: an
/// encoded list of headers is decoded to the same headers.
pub(super) fn run(input: &[u8]) {
    let Some((cut, frames)) = input.split_first() else { return };
    let bytes = [PREFACE, frames].concat();
    let cut = usize::from(*cut).min(bytes.len());
    let whole = rewritten(&[&bytes]);
    assert_eq!(whole, rewritten(&[&bytes[..cut], &bytes[cut..]]));
    assert_eq!(whole, rewritten(&bytes.chunks(1).collect::<Vec<_>>()));

    if let Ok(fields) = HpackDecoder::new(MAX_HEADER_BYTES).decode(frames) {
        let again = HpackDecoder::new(MAX_HEADER_BYTES).decode(&encode(&fields));
        assert_eq!(again.as_ref(), Ok(&fields));
    }
}

/// Returns the bytes that the runtime receives for these pieces.
fn rewritten(pieces: &[&[u8]]) -> BytesMut {
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
