//! The status code of a gRPC call, as its headers or trailers contain it.

use std::fmt;

use http::HeaderMap;

/// A gRPC status code. Codes that gRPC does not define are kept unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl From<tonic::Code> for Code {
    fn from(code: tonic::Code) -> Self {
        Self(i32::from(code).unsigned_abs())
    }
}

impl Code {
    /// Names of the codes 0 to 16, as gRPC spells them.
    pub const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    /// The call succeeded.
    pub const OK: Self = Self(0);

    /// The call was cancelled.
    pub const CANCELLED: Self = Self(1);

    /// The deadline of the call was over.
    pub const DEADLINE_EXCEEDED: Self = Self(4);

    /// The object of the call does not exist.
    pub const NOT_FOUND: Self = Self(5);

    /// A limit was reached.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);

    /// The runtime does not implement the method.
    pub const UNIMPLEMENTED: Self = Self(12);

    /// The service is not available.
    pub const UNAVAILABLE: Self = Self(14);

    /// Returns the name of the code, if gRPC defines the code.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.get(self.0 as usize).copied()
    }

    /// Returns the code that is displayed as this text.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        let number = || text.strip_prefix("CODE(")?.strip_suffix(')')?.parse().ok();
        let known =
            Self::NAMES.iter().position(|name| *name == text).and_then(|code| u32::try_from(code).ok());
        known.or_else(number).map(Self)
    }

    /// Returns the code in `grpc-status`, if the header exists and is a number.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        headers.get("grpc-status")?.to_str().ok()?.parse().ok().map(Self)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "CODE({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_grpc_status_is_read_from_headers_and_has_a_name() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", HeaderValue::from_static(value));
            Code::from_headers(&headers).map(|code| code.to_string())
        };
        assert_eq!(read("0").as_deref(), Some("OK"));
        assert_eq!(read("16").as_deref(), Some("UNAUTHENTICATED"));
        assert_eq!(read("99").as_deref(), Some("CODE(99)"));
        assert_eq!(read("four"), None);
        for code in [Code(0), Code(16), Code(99)] {
            assert_eq!(Code::named(&code.to_string()), Some(code));
        }
        assert_eq!(Code::named("FOUR"), None);
        assert_eq!(Code::from_headers(&HeaderMap::new()), None);
    }
}
