//! TLS of a server, whose certificates are read again when their files change.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use super::{PemSource, TlsError, certificates, private_key, roots};
use crate::file_id::FileStamp;

/// Files with the certificates of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsServerFiles {
    /// Certificate chain of the server.
    pub certificate: PathBuf,
    /// Key of the certificate.
    pub key: PathBuf,
    /// Certificates that sign the certificates of clients; `None` if clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate may connect although there is a `client_ca`. A client
    /// with a certificate of another authority may never connect.
    pub client_may_be_anonymous: bool,
}

/// TLS of a server. Each new connection uses the files as they are when it is accepted.
#[derive(Debug)]
pub struct TlsServer {
    files: TlsServerFiles,
    current: Mutex<LoadedFiles>,
}

/// The configuration of connections, and the files from which it was computed.
#[derive(Debug)]
struct LoadedFiles {
    stamps: Vec<Option<FileStamp>>,
    config: Arc<ServerConfig>,
}

impl TlsServer {
    /// Reads the files. Fails if one cannot be read, or if the certificate and the key do not
    /// belong together.
    pub fn open(files: TlsServerFiles) -> Result<Self, TlsError> {
        // The stamps are read first: a change while the files are read is noticed later.
        let current = LoadedFiles { stamps: files.stamps(), config: files.load()? };
        Ok(Self { files, current: Mutex::new(current) })
    }

    /// Performs the TLS handshake with a client.
    pub async fn accept<S>(self: Arc<Self>, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = spawn_blocking(move || self.current_config()).await.map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(stream).await
    }

    /// Returns the configuration. Reads the files if one has changed. If they cannot be used, the
    /// configuration stays as it was, until a file changes again.
    fn current_config(&self) -> Arc<ServerConfig> {
        let stamps = self.files.stamps();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if stamps != current.stamps {
            current.stamps = stamps;
            let certificate = self.files.certificate.display();
            match self.files.load() {
                Ok(config) => {
                    current.config = config;
                    info!(%certificate, "certificates of the metrics have changed and were read again");
                }
                Err(error) => warn!(
                    %certificate, %error,
                    "certificates of the metrics have changed and cannot be used: the previous ones stay in use"
                ),
            }
        }
        current.config.clone()
    }
}

/// Returns whether the client of a connection has a certificate, which the handshake has verified.
#[must_use]
pub fn has_client_certificate<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.peer_certificates().is_some_and(|certificates| !certificates.is_empty())
}

impl TlsServerFiles {
    fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.expect("ring has a suite for each version");
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(client_ca) => {
                let roots = Arc::new(roots(PemSource::File(client_ca))?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier =
                    if self.client_may_be_anonymous { verifier.allow_unauthenticated() } else { verifier };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(&error))?)
            }
        };
        let chain = certificates(PemSource::File(&self.certificate))?;
        let mut config = builder.with_single_cert(chain, private_key(PemSource::File(&self.key))?)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn stamps(&self) -> Vec<Option<FileStamp>> {
        [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .map(|path| path.and_then(|path| FileStamp::from_path(path)))
            .collect()
    }
}

fn unusable(error: &VerifierBuilderError) -> TlsError {
    TlsError::Unusable(tokio_rustls::rustls::Error::General(error.to_string()))
}
