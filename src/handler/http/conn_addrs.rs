//! Addresses of a connection, and Go's texts for errors on it.

use std::error::Error as _;
use std::io;

use super::heads::HeadersExceeded;
use crate::gofmt::system_error;

/// Text of Go before the reason for which the head of a response could not be read.
const BROKEN: &str = "net/http: HTTP/1.x transport connection broken";

/// Addresses of both ends of a connection, in Go's format.
#[derive(Clone)]
pub(super) struct ConnAddrs(pub(super) String);

impl ConnAddrs {
    /// Returns Go's text for an error that ended an exchange before its response.
    pub(super) fn go_error(&self, error: &hyper::Error) -> String {
        if error.is_incomplete_message() {
            return "EOF".to_owned();
        }
        if error.is_parse() {
            return format!("{BROKEN}: malformed HTTP response: {error}");
        }
        match io_error(error) {
            Some(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                format!("{BROKEN}: unexpected EOF")
            }
            Some(source) if HeadersExceeded::is(source) => format!("{BROKEN}: {HeadersExceeded}"),
            _ => self.go_io_error(error),
        }
    }

    /// Returns Go's text for an error that ended the body of a response.
    pub(super) fn go_body_error(&self, error: &hyper::Error) -> String {
        if error.is_incomplete_message() || error.is_body_write_aborted() {
            return "unexpected EOF".to_owned();
        }
        self.go_io_error(error)
    }

    fn go_io_error(&self, error: &hyper::Error) -> String {
        match io_error(error) {
            Some(source) => self.system_error(source),
            None => error.source().map_or_else(|| error.to_string(), ToString::to_string),
        }
    }

    /// Returns Go's text for an error that ended a response over HTTP/2.
    pub(super) fn go_http2_error(&self, error: &h2::Error) -> String {
        error.get_io().map_or_else(|| error.to_string(), |source| self.system_error(source))
    }

    fn system_error(&self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            _ => format!("read tcp {}: read: {}", self.0, system_error(error)),
        }
    }
}

/// Returns the I/O error of the connection that ended an exchange, if there is one.
fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    error.source().and_then(|source| source.downcast_ref())
}
