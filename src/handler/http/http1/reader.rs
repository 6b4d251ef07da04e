//! Reads the head of a response from a connection.

use tokio::io::AsyncRead;

use super::body::Http1Body;
use super::connection::{Connection, ReadError};
use super::{MAX_HEADER_BYTES, ResponseHead};

/// Reads the interim heads and the final head of a response (`persistConn.readResponse`).
pub(in crate::handler::http) async fn read_response<S: AsyncRead + Unpin>(
    stream: S,
) -> Result<(ResponseHead, Http1Body<S>), ReadError> {
    let mut connection = Connection::new(stream);
    match connection.fill().await {
        Ok(0) => return Err(ReadError::Eof),
        Ok(_) => {}
        Err(error) => return Err(ReadError::Io(error)),
    }
    loop {
        let (status, headers) = match connection.read_head().await {
            Err(_) if connection.is_over_limit() => {
                return Err(ReadError::Broken(format!(
                    "net/http: server response headers exceeded {MAX_HEADER_BYTES} bytes; aborted"
                )));
            }
            read => read?,
        };
        let framing = headers.framing(status).map_err(ReadError::Broken)?;
        if status.is_interim() {
            continue;
        }
        connection.end_limit();
        let head = ResponseHead { status: status.code, location: headers.location };
        return Ok((head, Http1Body::new(connection, framing)));
    }
}
