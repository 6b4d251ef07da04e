//! Errors of HTTP/2 connections, in Go's words.

use std::fmt;
use std::io;

/// Reason for which a connection or its stream ended.
#[derive(Debug)]
pub(in crate::handler) enum Http2Error {
    /// The connection ended between two frames.
    Eof,
    /// The connection ended within a frame.
    UnexpectedEof,
    /// The connection failed.
    Io(io::Error),
    /// The connection cannot be used any more, with a code.
    Connection(u32),
    /// The stream has ended, with a code and a cause.
    Stream(u32, Option<String>),
    /// A frame is longer than the client allows. What looked like it may have been the begin of an
    /// HTTP/1 response.
    TooLarge { is_http1: bool },
}

/// Returns the name of a code (RFC 9113, section 7).
pub(in crate::handler) fn code_name(code: u32) -> String {
    let name = match code {
        0 => "NO_ERROR",
        1 => "PROTOCOL_ERROR",
        2 => "INTERNAL_ERROR",
        3 => "FLOW_CONTROL_ERROR",
        4 => "SETTINGS_TIMEOUT",
        5 => "STREAM_CLOSED",
        6 => "FRAME_SIZE_ERROR",
        7 => "REFUSED_STREAM",
        8 => "CANCEL",
        9 => "COMPRESSION_ERROR",
        10 => "CONNECT_ERROR",
        11 => "ENHANCE_YOUR_CALM",
        12 => "INADEQUATE_SECURITY",
        13 => "HTTP_1_1_REQUIRED",
        _ => return format!("unknown error code 0x{code:x}"),
    };
    name.to_owned()
}

impl fmt::Display for Http2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eof => f.write_str("EOF"),
            Self::UnexpectedEof => f.write_str("unexpected EOF"),
            Self::Io(error) => error.fmt(f),
            Self::Connection(code) => write!(f, "connection error: {}", code_name(*code)),
            Self::Stream(code, None) => write!(f, "stream error: stream ID 1; {}", code_name(*code)),
            Self::Stream(code, Some(cause)) => {
                write!(f, "stream error: stream ID 1; {}; {cause}", code_name(*code))
            }
            Self::TooLarge { is_http1: false } => f.write_str("http2: frame too large"),
            Self::TooLarge { is_http1: true } => f.write_str(
                "http2: failed reading the frame payload: http2: frame too large, note that the frame header looked \
                 like an HTTP/1.1 header",
            ),
        }
    }
}
