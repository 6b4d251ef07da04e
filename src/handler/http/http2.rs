//! Exchange of one request over HTTP/2. The handler uses h2, because interim heads must be limited
//! as in Go, and hyper drops them silently.

use std::future::poll_fn;
use std::mem;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::Builder;
use http::header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Parts, Scheme, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, Request, response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::conn_addrs::ConnAddrs;
use super::headers::GetRequest;
use super::target_url::TargetUrl;
use crate::handler::driver::drive;

/// Maximum number of bytes of the headers of one head, and of all interim heads of a response
/// together, as in Go.
const MAX_HEADER_LIST_BYTES: u32 = 10 << 20;

/// Number of bytes that RFC 9113 (6.5.2) and Go add to the size of each header.
const HEADER_OVERHEAD: usize = 32;

/// Text of Go for interim heads that are too large.
const TOO_LARGE: &str = "stream error: stream ID 1; PROTOCOL_ERROR; header list too large";

/// Size of `:status`, which every head has.
const STATUS_SIZE: usize = ":status".len() + "100".len() + HEADER_OVERHEAD;

/// Sends a request. Returns the head and the body of the response, and the handle of the task that
/// drives the connection.
pub(super) async fn exchange<S>(
    stream: S,
    request: GetRequest,
    place: &TargetUrl,
    ends: &ConnAddrs,
) -> Result<(response::Parts, RecvStream, AbortOnDropHandle<()>), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: h2::Error| ends.go_http2_error(&error);
    let request = for_http2(request, place).map_err(|error| error.to_string())?;
    let mut builder = Builder::new();
    builder.enable_push(false).max_header_list_size(MAX_HEADER_LIST_BYTES);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(failed)?;
    let driver = drive(async move { drop(connection.await) });
    let (mut response, _) =
        client.ready().await.and_then(|mut client| client.send_request(request, true)).map_err(failed)?;
    let mut size: u64 = 0;
    while let Some(interim) = poll_fn(|cx| response.poll_informational(cx)).await {
        size += size_of(interim.map_err(failed)?.headers());
        if size > MAX_HEADER_LIST_BYTES.into() {
            return Err(TOO_LARGE.to_owned());
        }
    }
    let (head, body) = response.await.map_err(failed)?.into_parts();
    Ok((head, body, driver))
}

/// Returns the size of an interim head, as HTTP/2 counts it.
fn size_of(headers: &HeaderMap) -> u64 {
    let size =
        |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + HEADER_OVERHEAD;
    let size: usize = STATUS_SIZE + headers.iter().map(size).sum::<usize>();
    size.try_into().unwrap_or(u64::MAX)
}

/// Converts a request of HTTP/1: moves the host to `:authority` and removes the headers that HTTP/2
/// does not allow.
fn for_http2(mut request: GetRequest, place: &TargetUrl) -> Result<Request<()>, http::Error> {
    let headers = request.headers_mut();
    let host = headers.remove(HOST);
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
    if headers.get(TE).is_some_and(|value| value != "trailers") {
        headers.remove(TE);
    }
    let mut parts: Parts = mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    let host = host.as_ref().map_or(place.authority.as_bytes(), HeaderValue::as_bytes);
    parts.authority = Some(Authority::try_from(host)?);
    *request.uri_mut() = Uri::from_parts(parts)?;
    Ok(request.map(drop))
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};
    use tokio::io::duplex;

    use super::super::headers::Headers;
    use super::*;

    /// Sends a request to a server that sends `interim` interim heads before its response, each
    /// with a header of `length` bytes.
    async fn status(interim: usize, length: usize) -> Result<StatusCode, String> {
        let (ours, theirs) = duplex(64 << 10);
        let server = tokio::spawn(async move {
            let mut connection = h2::server::handshake(theirs).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            for _ in 0..interim {
                let hints = Response::builder().status(103).header("link", "x".repeat(length));
                respond.send_informational(hints.body(()).unwrap()).unwrap();
            }
            respond.send_response(Response::new(()), true).unwrap();
            // The server ends with the connection.
            let _ = connection.accept().await;
        });
        let place = TargetUrl::new(true, "localhost", 1, "/", false).unwrap();
        let request = Headers::new(&[], "a").unwrap().request(&place, None, None).unwrap();
        let answered = exchange(ours, request, &place, &ConnAddrs("a->b".to_owned())).await;
        let status = answered.map(|(head, ..)| head.status);
        server.await.unwrap();
        status
    }

    #[tokio::test]
    async fn interim_heads_over_http_2_are_limited_as_by_go() {
        const LENGTH: usize = 4 << 10;
        let size = STATUS_SIZE + "link".len() + LENGTH + HEADER_OVERHEAD;
        let most = usize::try_from(MAX_HEADER_LIST_BYTES).unwrap() / size;
        assert_eq!(status(1_000, 0).await, Ok(StatusCode::OK));
        assert_eq!(status(most, LENGTH).await, Ok(StatusCode::OK));
        assert_eq!(status(most + 1, LENGTH).await, Err(TOO_LARGE.to_owned()));
    }
}
