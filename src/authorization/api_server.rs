//! Client of an API server, for reviews. The crate kube is not used for them: it would add thirty
//! crates for two requests.

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

use super::credentials::{Content, Credentials, CredentialsError};
use super::kubeconfig::{self, KubeconfigError};
use crate::https::{self, HttpsError};
use crate::terminal::sanitize;
use crate::tls::TlsError;

/// Directory of the credentials of a pod's service account.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Maximum length of a response body.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

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
        path: &'static str,
        /// Status of the response.
        status: StatusCode,
        /// Message of the API server, sanitized.
        message: String,
    },
    /// The request cannot be written, or the response cannot be read, as JSON.
    #[error("no review in the response: {0}")]
    Json(#[from] serde_json::Error),
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
        let url = Url::parse(&format!("https://{host}:{port}"))
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

    /// Creates an object, such as a review, and returns it as the API server completed it.
    pub(super) async fn create<T: Serialize + DeserializeOwned>(
        &self,
        path: &'static str,
        object: &T,
    ) -> Result<T, ApiServerError> {
        let request = self.request(path, serde_json::to_vec(object)?)?;
        let tls = self.credentials.tls().map_err(CredentialsError::from)?;
        let response = https::send(&self.url, Some(tls), request, MAX_RESPONSE_BYTES).await?;
        let (status, body) = (response.status(), response.into_body());
        if !status.is_success() {
            return Err(ApiServerError::Refused { path, status, message: message(&body) });
        }
        Ok(serde_json::from_slice(&body)?)
    }

    fn request(&self, path: &str, body: Vec<u8>) -> Result<Request<Full<Bytes>>, CredentialsError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        // A proxy may serve the API server below a path.
        let path = format!("{}{path}", self.url.path().trim_end_matches('/'));
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = self.credentials.authorization()? {
            headers.insert(AUTHORIZATION, authorization);
        }
        Ok(request)
    }
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
