//! One request and the head of its answer, over a connection of its own; what goes wrong, in Go's words.

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
use crate::handler::dial::{dial, system_error};
use crate::handler::driver::drive;
use crate::tls::{Tls, is_http2};

/// How long TLS may take to begin, as Go has it.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What Go says of a server that answers HTTPS with plain HTTP.
pub(in crate::handler) const NOT_HTTPS: &str = "http: server gave HTTP response to HTTPS client";

/// Headers of an answer; Go counts only their bytes.
const MAX_HEADERS: usize = 10_000;

/// Bytes of an answer that hyper may buffer: a whole head, which is limited before hyper reads it, and a part of the body.
const MAX_BUFFERED_BYTES: usize = MAX_HEADER_BYTES + (64 << 10);

/// An answer whose body has not been read.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Body,
    ends: ConnAddrs,
    /// Drives the connection for as long as the answer is there.
    _driver: AbortOnDropHandle<()>,
}

/// The body of an answer.
enum Body {
    Http1(Incoming),
    Http2(RecvStream),
}

/// Asks for a page.
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

async fn over_http1<S>(stream: S, request: GetRequest, ends: ConnAddrs) -> Result<HttpResponse, String>
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

async fn over_http2<S>(
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
    /// Where it sends one, if it does. Without a place it does not.
    pub(super) fn location(&self) -> Option<String> {
        let location = self.headers.get(LOCATION).filter(|location| !location.is_empty());
        let is_redirect = matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        location
            .filter(|_| is_redirect)
            .map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned())
    }

    /// The beginning of its body.
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
    /// Returns the next part of it, until it ends.
    async fn next(&mut self, ends: &ConnAddrs) -> Result<Option<Bytes>, String> {
        match self {
            Self::Http1(body) => {
                let frame = body.frame().await.transpose().map_err(|error| ends.go_body_error(&error))?;
                Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
            }
            // What is read of it is less than a window: the server need not be told that it may send more.
            Self::Http2(body) => body.data().await.transpose().map_err(|error| ends.go_http2_error(&error)),
        }
    }
}

/// Why TLS was not to be had.
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

/// The name of an alert, as words: `HandshakeFailure` → `handshake failure`.
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
