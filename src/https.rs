//! A single HTTP/1.1 request on a connection of its own, with or without TLS.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::tls::Tls;

/// Idle time of a connection after which the kernel tests whether the peer is still there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);

/// Interval between two such tests. After several without an answer, the connection ends.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Reason why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    /// The connection cannot be established, or TLS rejects the certificate of the server.
    #[error("cannot connect: {0}")]
    Unreachable(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("request failed: {0}")]
    Exchange(Box<dyn std::error::Error + Send + Sync>),
    /// The body of the response exceeds the limit, in bytes.
    #[error("request failed: the body is longer than {} MiB", .0 >> 20)]
    TooLong(usize),
}

/// The body of a response, piece by piece. Its connection ends when it is dropped.
#[derive(Debug)]
pub struct StreamedBody {
    body: Incoming,
    _sender: http1::SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

impl StreamedBody {
    /// Returns the next piece of the body; `None` at its end. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpsError> {
        while let Some(frame) = self.body.frame().await {
            // Trailers have no data.
            if let Ok(data) = frame.map_err(|error| HttpsError::Exchange(error.into()))?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Returns the rest of the body, of at most `max_bytes`.
    pub async fn collect(&mut self, max_bytes: usize) -> Result<Bytes, HttpsError> {
        let body = Limited::new(&mut self.body, max_bytes).collect().await;
        let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
            Ok(_) => HttpsError::TooLong(max_bytes),
            Err(error) => HttpsError::Exchange(error),
        })?;
        Ok(body.to_bytes())
    }
}

/// Sends a request to the host and port of a URL, and returns the response with its body. The
/// request has the path; `tls` is `None` for `http`.
pub async fn send(
    url: &Url,
    tls: Option<Tls>,
    request: Request<Full<Bytes>>,
    max_response_bytes: usize,
) -> Result<Response<Bytes>, HttpsError> {
    let (head, mut body) = open(url, tls, request).await?.into_parts();
    Ok(Response::from_parts(head, body.collect(max_response_bytes).await?))
}

/// Sends a request as [`send`] does, and returns the response when its head has arrived.
pub async fn open(
    url: &Url,
    tls: Option<Tls>,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<StreamedBody>, HttpsError> {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let host = HeaderValue::from_str(&format!("{}{port}", url.host_str().unwrap_or_default()));
    let headers = request.headers_mut();
    headers.extend(host.map(|host| (HOST, host)));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, url.port_or_known_default().unwrap_or(0))).await?;
    // A peer that has gone without a word is noticed although nothing is sent to it.
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    match tls {
        None => exchange(stream, request).await,
        Some(tls) => exchange(tls.connect(stream, host).await?, request).await,
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<StreamedBody>, HttpsError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| HttpsError::Exchange(error.into());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(response.map(|body| StreamedBody { body, _sender: sender, _driver: driver }))
}
