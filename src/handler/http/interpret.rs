//! Interprets arbitrary bytes as the response of a container, for a fuzz target.

use std::time::Duration;

use tokio::io::duplex;
use tokio::time::Instant;

use super::conn_addrs::ConnAddrs;
use super::finished;
use super::headers::Headers;
use super::http2::NoResponse;
use super::round_trip::{over_http1, over_http2};
use super::target_url::TargetUrl;
use crate::handler::interpret::{PIPE_BYTES, answer};
use crate::handler::{MAX_OUTPUT_BYTES, ProbeError, ProbeOutcome, USER_AGENT};

/// Timeout of an exchange, which needs no time.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of bytes of a message besides the body of a response.
const MAX_MESSAGE_BYTES: usize = 5 << 10;

/// Maximum number of bytes by which a byte that is not UTF-8 is replaced.
const REPLACEMENT_BYTES: usize = 3;

/// Reads bytes, which arrive in these pieces, as the response to an attempt, and prepares the
/// request of a redirect. Bytes that begin with 0, as each HTTP/2 connection of a server does, are
/// read as HTTP/2. Returns the result of the attempt, without addresses and times.
pub(crate) async fn interpret_response(pieces: &[&[u8]], redact: bool) -> Result<String, String> {
    let place = TargetUrl::new(false, "10.0.0.1", 8080, "/healthz?token=secret", redact);
    let place = place.expect("the host is an address");
    let headers = Headers::new(&[], USER_AGENT).expect("no header is configured");
    let request = headers.request(&place, None, None).expect("the path is valid");
    let (ours, theirs) = duplex(PIPE_BYTES);
    let sent = pieces.iter().map(|piece| piece.to_vec()).collect();
    let server = tokio::spawn(answer(theirs, sent));
    let addresses = ConnAddrs("10.0.0.1:1->10.0.0.1:8080".to_owned());
    let is_http2 = pieces.iter().find_map(|piece| piece.first()) == Some(&0);
    let answered = if is_http2 {
        over_http2(Box::new(ours), &request, addresses).await.map_err(|error| match error {
            NoResponse::Failed(reason) => reason,
            NoResponse::Unprocessed => "unprocessed".to_owned(),
        })
    } else {
        over_http1(Box::new(ours), &request, addresses).await
    };
    let outcome = match answered {
        Ok(answer) => {
            if let Some(location) = answer.location()
                && let Ok((next, _)) = place.resolve_redirect(location)
            {
                let target = next.target();
                assert!(!target.iter().any(u8::is_ascii_control), "{target:?}");
                // The host of a redirect may be one that cannot be sent.
                let _ = headers.request(&next, None, Some(&place.referer()));
                drop((next.host().into_owned(), next.port(), next.quoted()));
            }
            match finished(answer, Instant::now() + TIMEOUT).await {
                Ok(
                    ProbeOutcome::Success(text) | ProbeOutcome::Warning(text) | ProbeOutcome::Failure(text),
                ) => Ok(text),
                Err(ProbeError::Body(reason)) => Err(reason),
                Err(_) => Err(String::new()),
            }
        }
        Err(reason) => Err(reason),
    };
    server.abort();
    let length = outcome.as_ref().unwrap_or_else(|reason| reason).len();
    let limit = REPLACEMENT_BYTES * MAX_OUTPUT_BYTES + MAX_MESSAGE_BYTES;
    assert!(length <= limit, "{length} bytes");
    outcome
}
