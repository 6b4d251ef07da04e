//! Interprets arbitrary bytes as the response of a container, for a fuzz target.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::Instant;

use super::conn_addrs::ConnAddrs;
use super::finished;
use super::headers::Headers;
use super::heads::{HeadStage, Heads};
use super::round_trip::{over_http1, over_http2};
use super::target_url::TargetUrl;
use crate::handler::{MAX_OUTPUT_BYTES, ProbeError, ProbeOutcome, USER_AGENT};

/// Number of bytes that a connection holds between its ends.
const PIPE_BYTES: usize = 64 << 10;

/// Timeout of an exchange, which needs no time.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of bytes of a message besides the body of a response.
const MAX_MESSAGE_BYTES: usize = 512;

/// Maximum number of bytes by which a byte that is not UTF-8 is replaced.
const REPLACEMENT_BYTES: usize = 3;

/// Returns the bytes of a response that arrives in these pieces, without its interim heads, and
/// whether its final head is complete.
pub(crate) fn split_heads(pieces: &[&[u8]]) -> (BytesMut, bool) {
    let (mut heads, mut passed) = (Heads::default(), BytesMut::new());
    for piece in pieces {
        heads.read(piece, &mut passed);
    }
    (passed, heads.stage == HeadStage::Body)
}

/// Reads bytes as the response to an attempt, and prepares the request of a redirect. Bytes that
/// begin with 0, as each HTTP/2 connection of a server does, are read as HTTP/2.
pub(crate) async fn interpret_response(response: &[u8], redact: bool) {
    let place = TargetUrl::new(false, "10.0.0.1", 8080, "/healthz?token=secret", redact);
    let place = place.expect("the host is an address");
    let headers = Headers::new(&[], USER_AGENT).expect("no header is configured");
    let request = headers.request(&place, None, None).expect("the path is valid");
    let (ours, theirs) = duplex(PIPE_BYTES);
    let server = tokio::spawn(answer(theirs, response.to_vec()));
    let addresses = ConnAddrs("10.0.0.1:1->10.0.0.1:8080".to_owned());
    let answered = if response.starts_with(&[0]) {
        over_http2(ours, request, &place, addresses).await
    } else {
        over_http1(ours, request, addresses).await
    };
    if let Ok(answer) = answered {
        if let Some(location) = answer.location()
            && let Some((next, _)) = place.resolve_redirect(&location)
        {
            let target = next.target();
            assert!(target.bytes().all(|byte| byte.is_ascii_graphic()), "{target:?}");
            // The host of a redirect may be one that cannot be sent.
            let _ = headers.request(&next, None, Some(&place.url()));
            drop((next.host().to_owned(), next.port(), next.shown(&location).into_owned()));
        }
        let outcome = match finished(answer, Instant::now() + TIMEOUT).await {
            Ok(ProbeOutcome::Success(text) | ProbeOutcome::Warning(text) | ProbeOutcome::Failure(text)) => {
                text
            }
            Err(ProbeError::Body(reason)) => reason,
            Err(_) => String::new(),
        };
        let limit = REPLACEMENT_BYTES * MAX_OUTPUT_BYTES + MAX_MESSAGE_BYTES;
        assert!(outcome.len() <= limit, "{} bytes", outcome.len());
    }
    server.abort();
}

/// Sends a response once the request has begun to arrive, as the client requires.
async fn answer(mut stream: DuplexStream, response: Vec<u8>) {
    let mut request = [0; 1024];
    if stream.read(&mut request).await.is_ok() {
        // The client may close the connection before the end of the response.
        let _ = stream.write_all(&response).await;
        let _ = stream.shutdown().await;
        while stream.read(&mut request).await.is_ok_and(|count| count > 0) {}
    }
}
