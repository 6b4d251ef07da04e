//! Client of an API server: reviews, and a list and a watch of pods. The crate kube is not used for
//! them: it would add thirty crates and a second HTTP client for four requests.

mod credentials;
mod interpret;
mod kubeconfig;
mod lines;
mod node_kubeconfig;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use credentials::{Content, Credentials};

pub use credentials::CredentialsError;
pub(crate) use interpret::interpret_kubeconfig;
pub use kubeconfig::KubeconfigError;
pub(crate) use lines::Lines;
pub(crate) use node_kubeconfig::{NodeKubeconfig, NodeKubeconfigs};

use crate::ascii_url;
use crate::https::{self, HttpsError};
use crate::terminal::sanitize;
use crate::tls::{Tls, TlsError};

/// Directory of the credentials of a pod's service account.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Maximum length of the response to a review, or of a refusal.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Begin of the name of the user that a node's kubelet is (`pkg/auth/nodeidentifier/default.go`:
/// `nodeUserNamePrefix`).
const NODE_USER_PREFIX: &str = "system:node:";

/// Address of an API server, and the credentials for requests to it.
#[derive(Clone, Debug)]
pub struct ApiServer {
    url: Url,
    credentials: Credentials,
}

/// Reason why an API server does not answer a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiServerError {
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The API server cannot be reached, or the exchange failed.
    #[error(transparent)]
    Http(#[from] HttpsError),
    /// The API server refused the request.
    #[error("{path}: status {status}: {message}")]
    Refused {
        /// Path of the request.
        path: String,
        /// Status of the response.
        status: StatusCode,
        /// Message of the API server, sanitized.
        message: String,
    },
    /// The path cannot be requested.
    #[error("{path}: {source}")]
    Path {
        /// Path of the request.
        path: String,
        /// The error of its syntax.
        source: http::uri::InvalidUri,
    },
    /// The request cannot be written, or the response cannot be read, as JSON.
    #[error("the request or the response is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// A line of a watch exceeds the limit, in bytes.
    #[error("a line of the watch is longer than {} MiB", .0 >> 20)]
    LineTooLong(usize),
    /// The API server did not respond within the timeout.
    #[error("no response within {0:?}")]
    TimedOut(Duration),
}

impl ApiServer {
    /// Returns the API server of the current context of a kubeconfig.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, KubeconfigError> {
        let (url, credentials) = kubeconfig::read(path)?;
        Self { url, credentials }.checked()
    }

    /// Returns the API server of the pod in which probeshim runs, and the credentials of the pod's
    /// service account.
    pub fn in_cluster() -> Result<Self, KubeconfigError> {
        let variable = |name| env::var(name).map_err(|_| KubeconfigError::NotInCluster { variable: name });
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let url = ascii_url::parse(&format!("https://{host}:{port}"))
            .map_err(|_| KubeconfigError::NotInCluster { variable: "KUBERNETES_SERVICE_HOST" })?;
        let file = |name| Some(Content::File(PathBuf::from(SERVICE_ACCOUNT_DIR).join(name)));
        let credentials = Credentials { authority: file("ca.crt"), token: file("token"), identity: None };
        Self { url, credentials }.checked()
    }

    /// Fails if the credentials cannot be used at the moment.
    fn checked(self) -> Result<Self, KubeconfigError> {
        self.credentials.tls().map_err(CredentialsError::from)?;
        self.credentials.authorization()?;
        Ok(self)
    }

    /// Returns the address of the API server.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the name of the node whose kubelet has these credentials: that of the user
    /// `system:node:NAME` in the subject of the client certificate. `None` for another user, and
    /// without a client certificate.
    pub(crate) fn node_name(&self) -> Result<Option<String>, CredentialsError> {
        let user = self.credentials.common_name()?;
        let name = user.as_deref().and_then(|user| user.strip_prefix(NODE_USER_PREFIX));
        Ok(name.filter(|name| !name.is_empty()).map(str::to_owned))
    }

    /// Creates an object, such as a review, and returns it as the API server completed it.
    pub(crate) async fn create<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        object: &T,
    ) -> Result<T, ApiServerError> {
        let mut request = self.request(path, serde_json::to_vec(object)?)?;
        *request.method_mut() = Method::POST;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = https::send(&self.url, Some(self.tls()?), request, MAX_RESPONSE_BYTES).await?;
        let (status, body) = (response.status(), response.into_body());
        if !status.is_success() {
            return Err(refused(path, status, &body));
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Returns the body of the response to a GET request, of at most `max_bytes`.
    pub(crate) async fn get(&self, path: &str, max_bytes: usize) -> Result<Bytes, ApiServerError> {
        let request = self.request(path, Vec::new())?;
        let response = https::send(&self.url, Some(self.tls()?), request, max_bytes).await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(refused(path, status, response.body())),
        }
    }

    /// Returns the lines of the response to a GET request as they arrive.
    pub(crate) async fn lines(&self, path: &str) -> Result<Lines, ApiServerError> {
        let request = self.request(path, Vec::new())?;
        let (head, mut body) = https::open(&self.url, Some(self.tls()?), request).await?.into_parts();
        if head.status != StatusCode::OK {
            let message = body.collect(MAX_RESPONSE_BYTES).await?;
            return Err(refused(path, head.status, &message));
        }
        Ok(Lines::new(body))
    }

    fn tls(&self) -> Result<Tls, CredentialsError> {
        Ok(self.credentials.tls()?)
    }

    fn request(&self, path: &str, body: Vec<u8>) -> Result<Request<Full<Bytes>>, ApiServerError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        // A proxy may serve the API server below a path.
        let path = format!("{}{path}", self.url.path().trim_end_matches('/'));
        *request.uri_mut() = path.parse().map_err(|source| ApiServerError::Path { path, source })?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = self.credentials.authorization()? {
            headers.insert(AUTHORIZATION, authorization);
        }
        Ok(request)
    }
}

fn refused(path: &str, status: StatusCode, body: &[u8]) -> ApiServerError {
    let path = path.split('?').next().unwrap_or_default().to_owned();
    ApiServerError::Refused { path, status, message: message(body) }
}

/// Returns the message of a `Status` object, or the begin of another body.
fn message(body: &[u8]) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    sanitize(&text.chars().take(500).collect::<String>())
}

impl From<TlsError> for KubeconfigError {
    fn from(error: TlsError) -> Self {
        Self::Credentials(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_requested_is_an_error() {
        let url = Url::parse("https://h/prefix").unwrap();
        let server = ApiServer { url, credentials: Credentials::default() };
        assert_eq!(server.request("/api?a", Vec::new()).unwrap().uri(), "/prefix/api?a");
        let error = server.request("/a b", Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("/prefix/a b: "), "{error}");
    }
}
