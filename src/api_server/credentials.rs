//! Credentials that probeshim itself presents to the API server. Files are read for each request,
//! because the kubelet and cert-manager replace them before they expire.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http::HeaderValue;

use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};
use crate::tls::{self, PemSource, ServerTrust, Tls, TlsError};

/// A text that is in a file, or that the kubeconfig itself contains.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Path of the file.
    File(PathBuf),
    /// The text, and the field of the kubeconfig that contains it.
    Inline { name: String, content: Vec<u8> },
}

/// Credentials and trusted certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    /// Certificates that sign the certificate of the API server; `None` to accept any certificate.
    pub(super) authority: Option<Content>,
    /// Client certificate and its key.
    pub(super) identity: Option<(Content, Content)>,
    /// Bearer token.
    pub(super) token: Option<Content>,
}

/// Reason why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A certificate or a key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file with the token cannot be read.
    #[error("cannot read the token file {path}: {source}")]
    TokenFile {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The token has characters that an HTTP header cannot contain.
    #[error("the token has characters that an HTTP header cannot contain")]
    InvalidToken,
}

impl Credentials {
    /// Returns the files that are read.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        let all = self.authority.iter().chain(identity).chain(&self.token);
        all.filter_map(|content| match content {
            Content::File(path) => Some(&**path),
            Content::Inline { .. } => None,
        })
    }

    pub(super) fn tls(&self) -> Result<Tls, TlsError> {
        let authority = self.authority.as_ref().map(Content::pem);
        let identity = self.identity.as_ref().map(|(certificate, key)| (certificate.pem(), key.pem()));
        Tls::client(authority.map_or(ServerTrust::Insecure, ServerTrust::Ca), identity)
    }

    /// Returns the common name in the subject of the client certificate; `None` without one.
    pub(super) fn common_name(&self) -> Result<Option<String>, TlsError> {
        match &self.identity {
            Some((certificate, _)) => tls::common_name(certificate.pem()),
            None => Ok(None),
        }
    }

    /// Returns the value of the header `Authorization`; `None` without a token.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, CredentialsError> {
        let token = match &self.token {
            None => return Ok(None),
            Some(Content::Inline { content, .. }) => String::from_utf8_lossy(content).into_owned(),
            Some(Content::File(path)) => read_to_string(path, MAX_SMALL_FILE_BYTES)
                .map_err(|source| CredentialsError::TokenFile { path: path.clone(), source })?,
        };
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let mut value = value.map_err(|_| CredentialsError::InvalidToken)?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl Content {
    fn pem(&self) -> PemSource<'_> {
        match self {
            Self::File(path) => PemSource::File(path),
            Self::Inline { name, content } => PemSource::Text { name, content },
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Inline { name, .. } => f.write_str(name),
        }
    }
}
