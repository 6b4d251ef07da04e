//! Statuses of gRPC calls, in grpc-go's words.

use std::fmt;

use super::protobuf::{Value, fields};
use crate::gofmt::quote;
use crate::handler::http2::code_name;

/// Names of the codes, by number (`codes/code_string.go`).
const NAMES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// A status: a code, which may be any number, and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RpcStatus {
    pub(super) code: u32,
    pub(super) message: String,
}

impl RpcStatus {
    pub(super) const OK: u32 = 0;
    pub(super) const CANCELED: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const DEADLINE_EXCEEDED: u32 = 4;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const INTERNAL: u32 = 13;
    pub(super) const UNAVAILABLE: u32 = 14;
    pub(super) const UNAUTHENTICATED: u32 = 16;

    pub(super) fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL, message)
    }

    /// Returns the status in trailers: with the message of its details, if they have the same code
    /// (`internal/status.NewWithProto`).
    pub(super) fn with_details(self, details: &[Vec<u8>]) -> Self {
        let [details] = details else { return self };
        let Some(fields) = fields(details) else { return self };
        let mut detailed = Self::new(Self::OK, "");
        for (number, value) in fields {
            match (number, value) {
                // An int32, of which a varint has the low bits.
                #[expect(clippy::cast_possible_truncation, reason = "as protobuf decodes an int32")]
                (1, Value::Varint(code)) => detailed.code = code as u32,
                (2, Value::Bytes(message)) => {
                    // Go decodes no message with invalid UTF-8.
                    let Ok(message) = str::from_utf8(message) else { return self };
                    message.clone_into(&mut detailed.message);
                }
                _ => {}
            }
        }
        if detailed.code == self.code {
            return detailed;
        }
        Self::internal(format!(
            "grpc-status-details-bin mismatch: grpc-status={}, grpc-message={}, grpc-status-details-bin=code:{} \
             message:{}",
            self.code_name(),
            quote(&self.message),
            detailed.code,
            quote(&detailed.message)
        ))
    }

    /// Returns the status of a stream that ended with a code of HTTP/2 (`http2ErrConvTab`).
    pub(super) fn of_http2_code(code: u32, message: String) -> Self {
        let code = match code {
            0..=2 | 4..=6 | 9 | 10 | 13 => Self::INTERNAL,
            3 | 11 => Self::RESOURCE_EXHAUSTED,
            7 => Self::UNAVAILABLE,
            8 => Self::CANCELED,
            12 => Self::PERMISSION_DENIED,
            _ => Self::UNKNOWN,
        };
        Self::new(code, message)
    }

    /// Returns the status of a stream that the server has reset.
    pub(super) fn of_reset(code: u32) -> Self {
        Self::of_http2_code(
            code,
            format!("stream terminated by RST_STREAM with error code: {}", code_name(code)),
        )
    }

    /// Returns the code of a response with this HTTP status (`HTTPStatusConvTab`).
    pub(super) fn code_of_http_status(status: i64) -> u32 {
        match status {
            400 => Self::INTERNAL,
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 | 502..=504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }

    fn code_name(&self) -> String {
        let name = usize::try_from(self.code).ok().and_then(|code| NAMES.get(code));
        name.map_or_else(|| format!("Code({})", self.code), |name| (*name).to_owned())
    }
}

impl fmt::Display for RpcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code_name(), self.message)
    }
}
