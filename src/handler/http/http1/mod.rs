//! Reads HTTP/1 responses as Go's net/http does: what it accepts is accepted, what it refuses is
//! refused with its text (Go 1.26: `net/http/response.go`, `transfer.go`, `internal/chunked.go`,
//! `net/textproto/reader.go`). `make parity` compares both.
//!
//! The grammar, where it differs from RFC 9112:
//!
//! - Status lines. Accepted: any version `HTTP/D.D` of two digits; blanks before the code; a code
//!   of three characters that Go reads as a number, such as `+20`. Refused: an empty line before
//!   it; `HTTP/2`; a code of another length.
//! - Line ends. `\n` alone is accepted in heads. In the headers of chunks, it is refused, and so
//!   is `\r` within a line.
//! - Names of headers. Accepted: token characters and blanks; a name with blanks is no other
//!   name. Refused: empty names; other characters; a blank before the first name.
//! - Values of headers. Accepted: any byte but control characters; lines that are continued by a
//!   blank. Refused: control characters other than tab.
//! - Lengths. Accepted: equal ones; one beside `Transfer-Encoding: chunked`, which counts.
//!   Refused: empty ones; different ones; signs; more than 63 bits.
//! - Transfer encodings. Accepted: one `chunked` in any case; any with a version below 1.1, where
//!   they are ignored. Refused: other ones, and several.
//! - Chunks. Accepted: extensions; sizes of 16 digits. Refused before a chunk with data: too many
//!   bytes that are no data, which is 16 KiB more than 16 bytes and twice the data of each chunk.
//! - Trailers. Accepted: header lines below 4 KiB. Refused: longer ones, and an end without the
//!   final empty line.

mod body;
mod connection;
mod head;
mod reader;

pub(super) use body::{BodyError, Http1Body};
pub(super) use connection::ReadError;
pub(super) use reader::read_response;

/// Maximum number of bytes of all heads of a response together, as in Go's `http.Transport`.
pub(super) const MAX_HEADER_BYTES: usize = 10 << 20;

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// The status code, from 0 to 999.
    pub(super) status: u16,
    /// The first value of the header Location, if there is one.
    pub(super) location: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests;
