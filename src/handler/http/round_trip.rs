//! Exchange of a request and the head of its response, over a separate connection. Errors have Go's
//! texts.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::conn_addrs::ConnAddrs;
use super::headers::GetRequest;
use super::heads::{FinalHead, MAX_HEADER_BYTES};
use super::http2;
use super::target_url::TargetUrl;
use crate::gofmt::system_error;
use crate::handler::dial::dial;
use crate::handler::driver::drive;
use crate::tls::{Tls, is_http2};

/// Timeout of the TLS handshake, as in Go.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Text of Go for a server that responds to HTTPS with plain HTTP.
pub(in crate::handler) const NOT_HTTPS: &str = "http: server gave HTTP response to HTTPS client";

/// Maximum number of headers of a response. Go limits only their bytes.
const MAX_HEADERS: usize = 10_000;

/// Maximum number of bytes of a response that hyper buffers: a complete head, which is limited
/// before hyper reads it, and a part of the body.
const MAX_BUFFERED_BYTES: usize = MAX_HEADER_BYTES + (64 << 10);

/// A response whose body has not been read.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Body,
    ends: ConnAddrs,
    /// Handle of the task that drives the connection as long as the response exists.
    _driver: AbortOnDropHandle<()>,
}

/// Body of a response.
enum Body {
    Http1(Incoming),
    Http2(RecvStream),
}

/// Sends a request, and returns the response.
pub(super) async fn exchange(place: &TargetUrl, request: GetRequest) -> Result<HttpResponse, String> {
    let connection = dial(place.host(), place.port()).await.map_err(|error| error.to_string())?;
    let ends = ConnAddrs(format!("{}->{}", connection.local, connection.peer));
    if !place.is_https {
        return over_http1(connection, request, ends).await;
    }
    let name = if place.host().is_empty() { "localhost" } else { place.host() };
    let stream = timeout(HANDSHAKE, Tls::insecure().connect(connection, name)).await;
    let stream = stream.map_err(|_| "net/http: TLS handshake timeout".to_owned())?;
    let stream = stream.map_err(|error| go_tls_error(&error, &ends))?;
    if is_http2(&stream) {
        over_http2(stream, request, place, ends).await
    } else {
        over_http1(stream, request, ends).await
    }
}

pub(super) async fn over_http1<S>(
    stream: S,
    request: GetRequest,
    ends: ConnAddrs,
) -> Result<HttpResponse, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_headers(MAX_HEADERS).max_buf_size(MAX_BUFFERED_BYTES);
    let handshake = builder.handshake(TokioIo::new(FinalHead::new(stream))).await;
    let (mut sender, connection) = handshake.map_err(|error| ends.go_error(&error))?;
    let driver = drive(async move { drop(connection.await) });
    let response = sender.send_request(request).await.map_err(|error| ends.go_error(&error))?;
    let (head, body) = response.into_parts();
    let body = Body::Http1(body);
    Ok(HttpResponse { status: head.status, headers: head.headers, body, ends, _driver: driver })
}

pub(super) async fn over_http2<S>(
    stream: S,
    request: GetRequest,
    place: &TargetUrl,
    ends: ConnAddrs,
) -> Result<HttpResponse, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (head, body, driver) = http2::exchange(stream, request, place, &ends).await?;
    let body = Body::Http2(body);
    Ok(HttpResponse { status: head.status, headers: head.headers, body, ends, _driver: driver })
}

impl HttpResponse {
    /// Returns the target of a redirect; `None` if the response is no redirect or has no location.
    pub(super) fn location(&self) -> Option<String> {
        let location = self.headers.get(LOCATION).filter(|location| !location.is_empty());
        let is_redirect = matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        location
            .filter(|_| is_redirect)
            .map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned())
    }

    /// Returns the beginning of the body, at most `longest` bytes.
    pub(super) async fn body(self, longest: usize) -> Result<Bytes, String> {
        let Self { mut body, ends, _driver, .. } = self;
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
            Self::Http1(body) => {
                let frame = body.frame().await.transpose().map_err(|error| ends.go_body_error(&error))?;
                Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
            }
            // The handler reads less than a window, so it need not release flow-control capacity.
            Self::Http2(body) => body.data().await.transpose().map_err(|error| ends.go_http2_error(&error)),
        }
    }
}

/// Returns Go's text for a failed TLS handshake.
fn go_tls_error(error: &io::Error, ends: &ConnAddrs) -> String {
    use tokio_rustls::rustls::{Error, InvalidMessage};
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => NOT_HTTPS.to_owned(),
        Some(Error::AlertReceived(alert)) => {
            format!("remote error: tls: {}", go_alert(&format!("{alert:?}")))
        }
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => format!("read tcp {}: read: {}", ends.0, system_error(error)),
    }
}

/// Returns the name of an alert as words: `HandshakeFailure` → `handshake failure`.
fn go_alert(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}
