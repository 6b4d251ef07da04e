//! The status message of a gRPC call, as its headers or trailers contain it.

use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode;

use super::Code;

/// Maximum number of bytes that are kept of a status message, as it is sent.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The beginning of a status message, percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusMessage(Box<[u8]>);

impl StatusMessage {
    /// Returns a copy of the beginning of `grpc-message`, if a call with this code has failed. A
    /// call without a code, or with code OK, costs nothing. The value is copied, because it shares
    /// the memory of everything that arrived with it.
    #[must_use]
    pub fn from_headers(code: Option<Code>, headers: &HeaderMap) -> Option<Self> {
        code.filter(|code| *code != Code::OK)?;
        let bytes = headers.get("grpc-message").map(HeaderValue::as_bytes)?;
        let end = bytes.len().min(MAX_MESSAGE_BYTES);
        (end > 0).then(|| Self(bytes[..end].into()))
    }

    /// Returns the message as text. Escapes that are invalid stay as they are, and bytes that are
    /// not UTF-8 are replaced.
    #[must_use]
    pub fn decoded(&self) -> Box<str> {
        String::from_utf8_lossy(&percent_decode(self.whole_escapes()).collect::<Vec<u8>>()).into()
    }

    /// Returns the bytes without an escape that was cut off at the end.
    fn whole_escapes(&self) -> &[u8] {
        let bytes = &self.0;
        if bytes.len() < MAX_MESSAGE_BYTES {
            return bytes;
        }
        let tail = bytes.len() - 2;
        let cut = bytes[tail..].iter().position(|byte| *byte == b'%').map_or(bytes.len(), |at| tail + at);
        &bytes[..cut]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: u32, message: &[u8]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-message", HeaderValue::from_bytes(message).unwrap());
        StatusMessage::from_headers(Some(Code(code)), &headers).map(|message| message.decoded().into())
    }

    #[test]
    fn the_message_of_a_failed_call_is_percent_decoded() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(2, b"exec: \"curl\": 100%25, caf%C3%A9%0A"), some("exec: \"curl\": 100%, café\n"));
        assert_eq!(read(0, b"fine"), None);
        assert_eq!(read(2, b""), None);
        assert_eq!(StatusMessage::from_headers(Some(Code(2)), &HeaderMap::new()), None);
        let mut headers = HeaderMap::new();
        headers.insert("grpc-message", HeaderValue::from_static("odd"));
        assert_eq!(StatusMessage::from_headers(None, &headers), None);
    }

    #[test]
    fn a_hostile_message_is_text_of_limited_length() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(2, b"%, %g0, %4"), some("%, %g0, %4"));
        assert_eq!(read(2, b"\xff%ff%00%1b[31m"), some("\u{fffd}\u{fffd}\0\u{1b}[31m"));
        let long = read(2, &b"x".repeat(1 << 20)).unwrap();
        assert_eq!(long.len(), MAX_MESSAGE_BYTES);
        for cut in 0..3 {
            let text = [&vec![b'x'; MAX_MESSAGE_BYTES - cut], &b"%41%41"[..]].concat();
            let expected = "x".repeat(MAX_MESSAGE_BYTES - cut);
            assert_eq!(read(2, &text), Some(expected), "the end is in an escape");
        }
    }
}
