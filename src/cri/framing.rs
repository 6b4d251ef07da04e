//! The gRPC frame of a message: a flag, a length, and the message.

use bytes::{BufMut as _, Bytes, BytesMut};

/// Number of bytes of the flag and the length.
const PREFIX: usize = 5;

/// Reason why bytes are not exactly one readable message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message is compressed. This module does not decompress messages.
    #[error("the message is compressed")]
    Compressed,
    /// The bytes contain no message, a part of a message, or several messages.
    #[error("there is not exactly one message")]
    NotOne,
}

/// Returns the message in the frame of a unary request or response.
pub fn unary_message(bytes: &[u8]) -> Result<&[u8], FrameError> {
    let (&[flag, length @ ..], message) = bytes.split_first_chunk::<PREFIX>().ok_or(FrameError::NotOne)?;
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        Err(FrameError::NotOne)
    } else if flag != 0 {
        Err(FrameError::Compressed)
    } else {
        Ok(message)
    }
}

/// Returns a message in its frame.
#[must_use]
pub fn framed_message(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unary_grpc_body_must_be_exactly_one_complete_message() {
        assert_eq!(unary_message(b"\0\0\0\0\x03abc"), Ok(&b"abc"[..]));
        assert_eq!(unary_message(b"\0\0\0\0\0"), Ok(&b""[..]));
        assert_eq!(unary_message(b"\x01\0\0\0\x03abc"), Err(FrameError::Compressed));
        for wrong in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab", b"\0\xff\xff\xff\xffab"] {
            assert_eq!(unary_message(wrong), Err(FrameError::NotOne), "{wrong:?}");
        }
    }
}
