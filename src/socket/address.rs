//! The address of a CRI endpoint: `unix:///path` or a bare path.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::file_id::FileId;

/// Maximum length in bytes of the path in a unix socket address, without the terminating zero.
const MAX_PATH: usize = 107;

/// The absolute path of a unix socket, of at most 107 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SocketPath(PathBuf);

/// Reason why a text is not the address of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is empty.
    #[error("is empty; write unix:///run/NAME.sock or a bare path")]
    Empty,
    /// The scheme is not `unix`.
    #[error("has the scheme {0}://, but only unix sockets are served; write unix:///path or a bare path")]
    Scheme(String),
    /// `unix:` is not followed by an absolute path.
    #[error("is not a unix URI; write it with three slashes, unix:///path, or as a bare path")]
    NotAbsolute,
    /// The path names a directory: its end is `/`, `/.` or `/..`.
    #[error("names a directory, not a socket in it")]
    NoFileName,
    /// The path contains a zero byte, which would end the path early.
    #[error("has a zero byte in its path")]
    ZeroByte,
    /// The path does not fit into a socket address.
    #[error("has a path of {length} bytes, but a unix socket's is at most {MAX_PATH}; choose a shorter path")]
    TooLong {
        /// Length of the absolute path in bytes.
        length: usize,
    },
}

impl SocketPath {
    /// Parses `unix:///path` or a bare path. A relative path is resolved against the working
    /// directory.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let path = if let Some(rest) = text.strip_prefix("unix:") {
            // `unix:///path` has an empty host before its path.
            rest.strip_prefix("//").filter(|path| path.starts_with('/')).ok_or(AddressError::NotAbsolute)?
        } else if let Some((scheme, _)) = text.split_once("://") {
            return Err(AddressError::Scheme(scheme.to_owned()));
        } else {
            text
        };
        Self::new(Path::new(path))
    }

    /// Creates a socket path. A relative path is resolved against the working directory.
    pub fn new(path: &Path) -> Result<Self, AddressError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.contains(&0) {
            return Err(AddressError::ZeroByte);
        }
        if [&b"/"[..], b"/.", b"/.."].iter().any(|end| bytes.ends_with(end)) {
            return Err(AddressError::NoFileName);
        }
        // This fails only for an empty path, or if the working directory was removed.
        let path = std::path::absolute(path).map_err(|_| AddressError::NotAbsolute)?;
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            return Err(AddressError::TooLong { length });
        }
        Ok(Self(path))
    }

    /// Returns the absolute path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Returns whether two paths lead to the same socket: the same file, or the same name in the
    /// same directory.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let place = |path: &Path| Some((path.parent()?.canonicalize().ok()?, path.file_name()?.to_owned()));
        let file = |path: &Path| path.metadata().ok().map(|file| FileId::from_metadata(&file));
        self == other
            || place(&self.0).is_some_and(|here| Some(here) == place(&other.0))
            || file(&self.0).is_some_and(|here| Some(here) == file(&other.0))
    }
}

impl FromStr for SocketPath {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, AddressError> {
        SocketPath::parse(text).map(|path| path.to_string())
    }

    #[test]
    fn a_unix_uri_and_a_bare_path_name_the_same_socket() {
        assert_eq!(parse("unix:///run/a.sock").as_deref(), Ok("unix:///run/a.sock"));
        assert_eq!(parse("/run/a.sock").as_deref(), Ok("unix:///run/a.sock"));
        let relative = std::env::current_dir().unwrap().join("a.sock");
        assert_eq!(parse("a.sock").unwrap(), format!("unix://{}", relative.display()));
    }

    #[test]
    fn an_invalid_socket_address_is_reported_with_its_reason() {
        assert_eq!(parse(""), Err(AddressError::Empty));
        assert_eq!(parse("tcp://127.0.0.1:1"), Err(AddressError::Scheme("tcp".into())));
        assert_eq!(parse("unix://run/a.sock"), Err(AddressError::NotAbsolute));
        assert_eq!(parse("unix:/run/a.sock"), Err(AddressError::NotAbsolute));
        assert_eq!(parse("unix://"), Err(AddressError::NotAbsolute));
        assert_eq!(parse("/run/probeshim/"), Err(AddressError::NoFileName));
        assert_eq!(parse("/run/a\0b"), Err(AddressError::ZeroByte));
    }

    #[test]
    fn a_socket_path_has_at_most_107_bytes() {
        let path = |length: usize| format!("/{}", "x".repeat(length - 1));
        assert!(parse(&path(107)).is_ok());
        assert_eq!(parse(&path(108)), Err(AddressError::TooLong { length: 108 }));
    }

    #[test]
    fn a_link_to_a_socket_is_the_same_socket() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| SocketPath::parse(dir.path().join(name).to_str().unwrap()).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(at("a").as_path()).unwrap();
        std::os::unix::fs::symlink(at("a").as_path(), at("link").as_path()).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("directory")).unwrap();
        assert!(at("link").is_same_as(&at("a")));
        assert!(at("directory/b").is_same_as(&at("b")), "neither exists, but both name one place");
        assert!(!at("a").is_same_as(&at("b")));
    }
}
