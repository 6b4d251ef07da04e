//! A single HTTP/1.1 request on a connection of its own, with or without TLS.

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::tls::Tls;

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

/// Sends a request to the host and port of a URL, and returns the response with its body. The
/// request has the path; `tls` is `None` for `http`.
pub async fn send(
    url: &Url,
    tls: Option<Tls>,
    mut request: Request<Full<Bytes>>,
    max_response_bytes: usize,
) -> Result<Response<Bytes>, HttpsError> {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let host = HeaderValue::from_str(&format!("{}{port}", url.host_str().unwrap_or_default()));
    let headers = request.headers_mut();
    headers.extend(host.map(|host| (HOST, host)));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, url.port_or_known_default().unwrap_or(0))).await?;
    match tls {
        None => exchange(stream, request, max_response_bytes).await,
        Some(tls) => exchange(tls.connect(stream, host).await?, request, max_response_bytes).await,
    }
}

async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    max_response_bytes: usize,
) -> Result<Response<Bytes>, HttpsError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| HttpsError::Exchange(error.into());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let _driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    let body = Limited::new(body, max_response_bytes).collect().await;
    let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(_) => HttpsError::TooLong(max_response_bytes),
        Err(error) => HttpsError::Exchange(error),
    })?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
