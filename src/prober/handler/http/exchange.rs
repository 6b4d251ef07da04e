//! One request and the head of its answer, over a connection of its own; what goes wrong, in Go's words.

use std::error::Error as _;
use std::io;
use std::mem;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, HOST, LOCATION};
use http::uri::{Parts, Scheme, Uri};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::headers::GetRequest;
use super::place::Place;
use crate::prober::handler::dial::{dial, system_words};
use crate::tls::{Tls, is_http2};

/// How long TLS may take to begin, as Go has it.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What Go says of a server that answers HTTPS with plain HTTP.
pub(in crate::prober::handler) const NOT_HTTPS: &str = "http: server gave HTTP response to HTTPS client";

/// Headers of an answer; Go counts their bytes instead.
const MOST_HEADERS: usize = 10_000;

/// An answer whose body has not been read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    response: Response<Incoming>,
    ends: Ends,
    /// Drives the connection for as long as the answer is there.
    _driver: AbortOnDropHandle<()>,
}

/// The ends of a connection, as Go names them.
#[derive(Clone)]
struct Ends(String);

/// Asks for a page.
pub(super) async fn exchange(place: &Place, request: GetRequest) -> Result<Answer, String> {
    let connection = dial(place.host(), place.port()).await.map_err(|error| error.to_string())?;
    let ends = Ends(format!("{}->{}", connection.local, connection.peer));
    if !place.is_https {
        return over_http1(connection, request, ends).await;
    }
    let name = if place.host().is_empty() { "localhost" } else { place.host() };
    let stream = timeout(HANDSHAKE, Tls::of_probes().speak(connection, name)).await;
    let stream = stream.map_err(|_| "net/http: TLS handshake timeout".to_owned())?;
    let stream = stream.map_err(|error| handshake_words(&error, &ends))?;
    if is_http2(&stream) {
        over_http2(stream, request, place, ends).await
    } else {
        over_http1(stream, request, ends).await
    }
}

async fn over_http1<S>(stream: S, request: GetRequest, ends: Ends) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_headers(MOST_HEADERS);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| ends.words(&error))?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await;
    ends.answer(response, driver)
}

async fn over_http2<S>(stream: S, request: GetRequest, place: &Place, ends: Ends) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| ends.words(&error))?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let request = for_http2(request, place).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await;
    ends.answer(response, driver)
}

/// The same request, with its host where HTTP/2 has it.
fn for_http2(mut request: GetRequest, place: &Place) -> Result<http::Request<Empty<Bytes>>, http::Error> {
    let host = request.headers_mut().remove(HOST);
    request.headers_mut().remove(CONNECTION);
    let mut parts: Parts = mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    let host = host.as_ref().map_or(place.authority.as_bytes(), http::HeaderValue::as_bytes);
    parts.authority = Some(http::uri::Authority::try_from(host)?);
    *request.uri_mut() = Uri::from_parts(parts)?;
    Ok(request)
}

impl Answer {
    /// Where it sends one, if it does. Without a place it does not.
    pub(super) fn location(&self) -> Option<String> {
        let location = self.response.headers().get(LOCATION).filter(|location| !location.is_empty());
        let is_redirect = matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        location
            .filter(|_| is_redirect)
            .map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned())
    }

    /// The beginning of its body.
    pub(super) async fn body(self, longest: usize) -> Result<Bytes, String> {
        let Self { response, ends, _driver, .. } = self;
        let mut body = response.into_body();
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ends.body_words(&error))?;
            if let Some(data) = frame.data_ref() {
                read.extend_from_slice(&data[..data.len().min(longest - read.len())]);
            }
            if read.len() == longest {
                break;
            }
        }
        Ok(read.freeze())
    }
}

impl Ends {
    fn answer(
        self,
        response: hyper::Result<Response<Incoming>>,
        driver: AbortOnDropHandle<()>,
    ) -> Result<Answer, String> {
        let response = response.map_err(|error| self.words(&error))?;
        Ok(Answer { status: response.status(), response, ends: self, _driver: driver })
    }

    /// What ended an exchange before its answer.
    fn words(&self, error: &hyper::Error) -> String {
        if error.is_incomplete_message() {
            return "EOF".to_owned();
        }
        if error.is_parse() {
            return format!(
                "net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}"
            );
        }
        self.io_words(error)
    }

    /// What ended an answer in its body.
    fn body_words(&self, error: &hyper::Error) -> String {
        if error.is_incomplete_message() || error.is_body_write_aborted() {
            return "unexpected EOF".to_owned();
        }
        self.io_words(error)
    }

    fn io_words(&self, error: &hyper::Error) -> String {
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        match source {
            Some(source) if source.kind() == io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            Some(source) => format!("read tcp {}: read: {}", self.0, system_words(source)),
            None => error.source().map_or_else(|| error.to_string(), ToString::to_string),
        }
    }
}

/// Why TLS was not to be had.
fn handshake_words(error: &io::Error, ends: &Ends) -> String {
    use tokio_rustls::rustls::{Error, InvalidMessage};
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => NOT_HTTPS.to_owned(),
        Some(Error::AlertReceived(alert)) => {
            format!("remote error: tls: {}", alert_words(&format!("{alert:?}")))
        }
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => format!("read tcp {}: read: {}", ends.0, system_words(error)),
    }
}

/// The name of an alert, as words: `HandshakeFailure` → `handshake failure`.
fn alert_words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
