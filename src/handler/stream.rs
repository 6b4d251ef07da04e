//! Connections with and without TLS.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection with or without TLS.
pub(super) type Stream = Box<dyn ReadWrite>;

/// Both directions of a connection.
pub(super) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for S {}
