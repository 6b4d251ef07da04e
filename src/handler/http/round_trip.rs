//! Exchange of a request and the head of its response, over a separate connection. Errors have Go's
//! texts.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use super::conn_addrs::ConnAddrs;
use super::go_tls::tls_error;
use super::headers::GetRequest;
use super::http1::{self, Http1Body};
use super::http2::{self, Http2Body, NoResponse};
use super::target_url::TargetUrl;
use crate::handler::dial::dial;
use crate::handler::stream::Stream;
use crate::tls::{Tls, is_http2};

/// Timeout of the TLS handshake, as in Go.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Pause before a request that a server has not processed is sent again. Go makes none.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// A response whose body has not been read.
pub(super) struct HttpResponse {
    /// The status code, which may be any number.
    pub(super) status: i64,
    /// The first location, if there is one.
    location: Option<Vec<u8>>,
    body: Body,
    ends: ConnAddrs,
}

/// Body of a response, with its connection.
enum Body {
    Http1(Http1Body<Stream>),
    Http2(Http2Body<Stream>),
}

/// Sends a request, and returns the response. A request that a server has not processed is sent
/// again, until the caller gives up.
pub(super) async fn exchange(place: &TargetUrl, request: &GetRequest) -> Result<HttpResponse, String> {
    loop {
        match exchange_once(place, request).await {
            Ok(response) => return Ok(response),
            Err(NoResponse::Failed(reason)) => return Err(reason),
            Err(NoResponse::Unprocessed) => sleep(RETRY_PAUSE).await,
        }
    }
}

async fn exchange_once(place: &TargetUrl, request: &GetRequest) -> Result<HttpResponse, NoResponse> {
    let host = place.host();
    let connection = dial(&host, place.port().map_err(NoResponse::Failed)?).await;
    let connection = connection.map_err(|error| NoResponse::Failed(error.to_string()))?;
    let ends = ConnAddrs(format!("{}->{}", connection.local, connection.peer));
    if !place.is_https() {
        return over_http1(Box::new(connection), request, ends).await.map_err(NoResponse::Failed);
    }
    let name = if host.is_empty() { "localhost" } else { &host };
    let stream = timeout(HANDSHAKE, Tls::insecure().connect(connection, name)).await;
    let stream = stream.map_err(|_| NoResponse::Failed("net/http: TLS handshake timeout".to_owned()))?;
    let stream = stream.map_err(|error| NoResponse::Failed(handshake_error(&error, &ends)))?;
    if is_http2(&stream) {
        over_http2(Box::new(stream), request, ends).await
    } else {
        over_http1(Box::new(stream), request, ends).await.map_err(NoResponse::Failed)
    }
}

pub(super) async fn over_http1(
    mut stream: Stream,
    request: &GetRequest,
    ends: ConnAddrs,
) -> Result<HttpResponse, String> {
    // A server may respond before it has read the request, and close the connection then.
    let _ = stream.write_all(&request.to_http1()).await;
    let _ = stream.flush().await;
    let (head, body) = http1::read_response(stream).await.map_err(|error| ends.go_read_error(&error))?;
    Ok(HttpResponse { status: head.status.into(), location: head.location, body: Body::Http1(body), ends })
}

pub(super) async fn over_http2(
    stream: Stream,
    request: &GetRequest,
    ends: ConnAddrs,
) -> Result<HttpResponse, NoResponse> {
    let response = http2::exchange(stream, request, ends.clone()).await?;
    let (status, location) = (response.status, response.location);
    Ok(HttpResponse { status, location, body: Body::Http2(response.body), ends })
}

impl HttpResponse {
    /// Returns the target of a redirect; `None` if the response is no redirect or has no location.
    pub(super) fn location(&self) -> Option<&[u8]> {
        let location = self.location.as_deref().filter(|location| !location.is_empty());
        location.filter(|_| matches!(self.status, 301 | 302 | 303 | 307 | 308))
    }

    /// Returns the beginning of the body, at most `longest` bytes.
    pub(super) async fn body(self, longest: usize) -> Result<Bytes, String> {
        let Self { mut body, ends, .. } = self;
        let mut read = BytesMut::new();
        while let Some(data) = body.next(&ends).await? {
            read.extend_from_slice(&data[..data.len().min(longest - read.len())]);
            if read.len() == longest {
                break;
            }
        }
        Ok(read.freeze())
    }
}

impl Body {
    /// Returns the next part of the body; `None` at its end.
    async fn next(&mut self, ends: &ConnAddrs) -> Result<Option<Bytes>, String> {
        match self {
            Self::Http1(body) => body.next().await.map_err(|error| ends.go_body_error(&error)),
            Self::Http2(body) => body.next().await,
        }
    }
}

/// Returns Go's text for a failed TLS handshake.
fn handshake_error(error: &io::Error, ends: &ConnAddrs) -> String {
    if tls_error(error).is_none() && error.kind() == io::ErrorKind::UnexpectedEof {
        return "EOF".to_owned();
    }
    ends.go_io_error(error)
}
