//! Client of the kubelet's `/pods` endpoint: on the read-only port without credentials, or on the
//! secure port with a token or a client certificate.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::manifest::document;
use crate::manifest::index::Manifests;
use crate::manifest::source::Source;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};
use crate::terminal::sanitize;
use crate::tls::{ServerTrust, Tls, TlsError};

/// Timeout of a request, from connecting to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a response body.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Address and credentials for requests to a kubelet.
#[derive(Clone, Debug)]
pub struct KubeletClient {
    /// Base URL: `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: Url,
    /// Path of a file with a bearer token.
    pub token: Option<PathBuf>,
    /// Paths of the client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Path of the CA certificates that may have signed the certificate of the kubelet. If `None`,
    /// any certificate is accepted.
    pub authority: Option<PathBuf>,
    /// Interval between a response and the next request.
    pub interval: Duration,
}

/// Reason why the pods of a kubelet cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeletError {
    /// The token file cannot be read.
    #[error("cannot read the token file {path}: {source}")]
    Token {
        /// Path of the token file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The token contains characters that an HTTP header cannot contain.
    #[error("token file {0} has characters that an HTTP header cannot contain")]
    NoToken(PathBuf),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The connection cannot be established, or TLS rejects the certificate of the kubelet.
    #[error("cannot connect: {0}")]
    Unreachable(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("request failed: {0}")]
    Answer(Box<dyn std::error::Error + Send + Sync>),
    /// The kubelet returned another status than 200.
    #[error("status {0}; the credentials must have permission to get nodes/proxy or nodes/pods")]
    Refused(StatusCode),
    /// The response is not JSON.
    #[error("the response is not a list of pods: {0}")]
    NotPodList(#[from] serde_json::Error),
    /// The kubelet did not respond within the timeout.
    #[error("no response within {REQUEST_TIMEOUT:?}")]
    TimedOut,
}

impl KubeletClient {
    /// Returns the pods of the node, and the errors in individual pods. `redact` keeps values,
    /// which may be commands, out of the errors.
    pub(crate) async fn pods(&self, redact: bool) -> Result<(Manifests, Vec<String>), KubeletError> {
        let answer = timeout(REQUEST_TIMEOUT, self.ask()).await.map_err(|_| KubeletError::TimedOut)??;
        let list: Value = serde_json::from_slice(&answer)?;
        let mut problems = Vec::new();
        let manifests =
            document::read_manifests(&list, Source::Kubelet, redact, &mut problems).into_iter().collect();
        Ok((manifests, problems.iter().map(ToString::to_string).collect()))
    }

    async fn ask(&self) -> Result<Bytes, KubeletError> {
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, self.url.port_or_known_default().unwrap_or(0))).await?;
        if self.url.scheme() != "https" {
            return exchange(stream, self.request()?).await;
        }
        let server = self.authority.as_deref().map_or(ServerTrust::Insecure, ServerTrust::CaFile);
        let identity = self.identity.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let stream = Tls::client(server, identity)?.connect(stream, host).await?;
        exchange(stream, self.request()?).await
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, KubeletError> {
        let url = &self.url;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = http::Uri::from_static("/pods");
        let headers = request.headers_mut();
        let authority = url.port().map_or_else(String::new, |port| format!(":{port}"));
        let host = format!("{}{authority}", url.host_str().unwrap_or_default());
        headers.extend(HeaderValue::from_str(&host).map(|host| (HOST, host)));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if let Some(path) = &self.token {
            let read = read_to_string(path, MAX_SMALL_FILE_BYTES);
            let token = read.map_err(|source| KubeletError::Token { path: path.clone(), source })?;
            let mut token = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
                .map_err(|_| KubeletError::NoToken(path.clone()))?;
            token.set_sensitive(true);
            headers.insert(AUTHORIZATION, token);
        }
        Ok(request)
    }

    /// Returns the name of the kubelet for messages.
    pub(crate) fn name(&self) -> String {
        format!("the kubelet at {}", sanitize(self.url.as_str().trim_end_matches('/')))
    }
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Bytes, KubeletError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let strange = |error: hyper::Error| KubeletError::Answer(error.into());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(strange)?;
    let _driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(strange)?;
    if response.status() != StatusCode::OK {
        return Err(KubeletError::Refused(response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(_) => KubeletError::Answer("the body is longer than 64 MiB".into()),
        Err(error) => KubeletError::Answer(error),
    })?;
    Ok(body.to_bytes())
}
