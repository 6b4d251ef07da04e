//! What is done once a container has started, and before it is stopped.

use crate::manifest::probe::HttpGet;

/// What a hook of a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A command is executed in the container. Nothing in it is expanded, and it has no timeout of its own.
    Exec(Vec<String>),
    /// A page is asked for; every answer will do.
    Http(HttpGet),
    /// So many seconds are waited.
    Sleep(u32),
    /// A connection is made. It has not been a handler of hooks for long, and always fails.
    Tcp,
    /// It is written in a way that cannot be read, for this reason.
    Invalid(String),
}
