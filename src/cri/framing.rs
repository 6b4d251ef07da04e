//! The frame that gRPC puts around each message: a flag, a length, the message.

/// Bytes of the flag and the length.
const PREFIX: usize = 5;

/// Why bytes are not one message that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message is compressed, and is not decompressed here.
    #[error("the message is compressed")]
    Compressed,
    /// There is no message, a part of one, or more than one.
    #[error("there is not exactly one message")]
    NotOne,
}

/// The one message of a unary request or response, out of its frame.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_whole_message_is_read_and_nothing_else() {
        assert_eq!(unary_message(b"\0\0\0\0\x03abc"), Ok(&b"abc"[..]));
        assert_eq!(unary_message(b"\0\0\0\0\0"), Ok(&b""[..]));
        assert_eq!(unary_message(b"\x01\0\0\0\x03abc"), Err(FrameError::Compressed));
        for wrong in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab", b"\0\xff\xff\xff\xffab"] {
            assert_eq!(unary_message(wrong), Err(FrameError::NotOne), "{wrong:?}");
        }
    }
}
