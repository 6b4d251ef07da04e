//! Client of the kubelet's `/pods` endpoint: on the read-only port without credentials, or on the
//! secure port with a token or a client certificate.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use crate::https::{self, HttpsError};
use crate::manifest::document;
use crate::manifest::index::Manifests;
use crate::manifest::source::Source;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};
use crate::terminal::sanitize;
use crate::tls::{PemSource, ServerTrust, Tls, TlsError};

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
    /// The kubelet cannot be reached, or the exchange failed.
    #[error(transparent)]
    Http(#[from] HttpsError),
    /// The kubelet returned another status than 200.
    #[error(
        "status {0}; the credentials must have permission to get nodes/pods (kubelet 1.33 and later) or nodes/proxy; \
             with `kubelet: {{kubeconfig: FILE}}` the pods are read from the API server instead"
    )]
    Refused(StatusCode),
    /// The response is not JSON.
    #[error("the response is not a list of pods: {0}")]
    NotPodList(#[from] serde_json::Error),
    /// The kubelet did not respond within the timeout.
    #[error("no response within {REQUEST_TIMEOUT:?}")]
    TimedOut,
}

impl KubeletClient {
    /// Returns the pods of the node, and the errors in individual pods. `source` is the source of
    /// their probes. `redact` keeps values, which may be commands, out of the errors.
    pub(crate) async fn pods(
        &self,
        source: Source,
        redact: bool,
    ) -> Result<(Manifests, Vec<String>), KubeletError> {
        let answer = timeout(REQUEST_TIMEOUT, self.fetch()).await.map_err(|_| KubeletError::TimedOut)??;
        let list: Value = serde_json::from_slice(&answer)?;
        let mut problems = Vec::new();
        let manifests = document::read_manifests(&list, source, redact, &mut problems).into_iter().collect();
        Ok((manifests, problems.iter().map(ToString::to_string).collect()))
    }

    async fn fetch(&self) -> Result<Bytes, KubeletError> {
        let tls = if self.url.scheme() == "https" { Some(self.tls()?) } else { None };
        let response = https::send(&self.url, tls, self.request()?, MAX_RESPONSE_BYTES).await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(KubeletError::Refused(status)),
        }
    }

    fn tls(&self) -> Result<Tls, TlsError> {
        let authority = self.authority.as_deref().map(PemSource::File);
        let identity = self.identity.as_ref();
        let identity =
            identity.map(|(certificate, key)| (PemSource::File(certificate), PemSource::File(key)));
        Tls::client(authority.map_or(ServerTrust::Insecure, ServerTrust::Ca), identity)
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, KubeletError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = http::Uri::from_static("/pods");
        let headers = request.headers_mut();
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

    /// Returns a client of a read-only port.
    pub(crate) fn of_read_only_port(url: Url) -> Self {
        Self { url, token: None, identity: None, authority: None, interval: Duration::from_secs(10) }
    }

    /// Returns the address of the kubelet for messages.
    pub(crate) fn place(&self) -> String {
        sanitize(self.url.as_str().trim_end_matches('/'))
    }
}
