//! Addresses of a connection, and Go's texts for errors on it.

use std::io;

use super::go_tls::tls_error;
use super::http1::{BodyError, ReadError};
use crate::gofmt::system_error;

/// Text of Go before the reason for which the head of a response could not be read.
const BROKEN: &str = "net/http: HTTP/1.x transport connection broken";

/// Addresses of both ends of a connection, in Go's format.
#[derive(Clone)]
pub(super) struct ConnAddrs(pub(super) String);

impl ConnAddrs {
    /// Returns Go's text for an error that ended an exchange before its response.
    pub(super) fn go_read_error(&self, error: &ReadError) -> String {
        match error {
            ReadError::Eof => "EOF".to_owned(),
            ReadError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            ReadError::Io(error) => self.go_io_error(error),
            ReadError::BrokenIo(error) => format!("{BROKEN}: {}", self.go_io_error(error)),
            ReadError::Broken(reason) => format!("{BROKEN}: {reason}"),
        }
    }

    /// Returns Go's text for an error that ended the body of a response.
    pub(super) fn go_body_error(&self, error: &BodyError) -> String {
        match error {
            BodyError::Io(error) => self.go_io_error(error),
            BodyError::Invalid(reason) => reason.clone(),
        }
    }

    /// Returns Go's text for an error of the connection.
    pub(super) fn go_io_error(&self, error: &io::Error) -> String {
        if let Some(text) = tls_error(error) {
            return text;
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            _ => format!("read tcp {}: read: {}", self.0, system_error(error)),
        }
    }
}
