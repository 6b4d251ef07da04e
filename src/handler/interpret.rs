//! Servers of arbitrary bytes, for fuzz targets.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Number of bytes that a connection holds between its ends.
pub(super) const PIPE_BYTES: usize = 64 << 10;

/// Sends a response once the request has begun to arrive, as the client requires.
pub(super) async fn answer(mut stream: DuplexStream, pieces: Vec<Vec<u8>>) {
    let mut request = [0; 1024];
    if stream.read(&mut request).await.is_ok() {
        for piece in pieces {
            // The client may close the connection before the end of the response.
            let _ = stream.write_all(&piece).await;
            tokio::task::yield_now().await;
        }
        let _ = stream.shutdown().await;
        while stream.read(&mut request).await.is_ok_and(|count| count > 0) {}
    }
}
