//! Interprets arbitrary bytes as the response of a container, for a fuzz target.

use std::time::Duration;

use tokio::io::duplex;

use super::call::{CallError, SETTINGS, check};
use crate::handler::http2::Http2Connection;
use crate::handler::interpret::{PIPE_BYTES, answer};
use crate::manifest::GrpcHealth;

/// Time that the request names.
const LIMIT: Duration = Duration::from_secs(10);

/// Reads bytes, which arrive in these pieces, as the response to a health check. Returns the status
/// of the service, or the text of the error.
pub(crate) async fn interpret_health_response(pieces: &[&[u8]]) -> Result<i32, String> {
    let (ours, theirs) = duplex(PIPE_BYTES);
    let sent = pieces.iter().map(|piece| piece.to_vec()).collect();
    let server = tokio::spawn(answer(theirs, sent));
    let mut connection = Http2Connection::begin(ours, SETTINGS).await.expect("the pipe takes the settings");
    let health = GrpcHealth { port: 8080, service: "a".to_owned(), is_tls: false };
    let answered = check(&mut connection, "10.0.0.1:8080", &health, LIMIT).await;
    server.abort();
    answered.map_err(|error| match error {
        CallError::Failed(status) | CallError::Unprocessed(status) => status.to_string(),
    })
}
