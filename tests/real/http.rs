//! The least of HTTP.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// What a server without TLS answers to a GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}
