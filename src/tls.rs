//! TLS for connections of our own: to what is probed, whose certificate does not matter, and to a kubelet.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, WantsVerifier,
};

/// Speaks TLS to servers.
#[derive(Clone)]
pub struct Tls(TlsConnector);

/// Why TLS cannot be spoken as somebody wants it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not what it should be.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The files do not go together.
    #[error(transparent)]
    Unusable(#[from] Error),
}

/// Who the server has to be.
#[derive(Clone, Copy, Debug)]
pub enum Server<'a> {
    /// Anybody.
    Anyone,
    /// Somebody whose certificate is signed by one in this file.
    SignedBy(&'a Path),
}

/// Takes every certificate.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

static OF_PROBES: LazyLock<Tls> = LazyLock::new(|| {
    let mut config = anyone(builder()).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Tls(TlsConnector::from(Arc::new(config)))
});

impl Tls {
    /// That of probes: with anybody, HTTP/2 where the server has it.
    #[must_use]
    pub fn of_probes() -> &'static Self {
        &OF_PROBES
    }

    /// That of a client, who may have a certificate and the key to it in files of their own.
    pub fn of_client(server: Server<'_>, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let config = match server {
            Server::Anyone => anyone(builder()),
            Server::SignedBy(file) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate)?;
                }
                builder().with_root_certificates(roots)
            }
        };
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let in_file = |source| TlsError::File { path: key.to_owned(), source };
                let key = PrivateKeyDer::from_pem_file(key).map_err(in_file)?;
                config.with_client_auth_cert(certificates(certificate)?, key)?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Speaks TLS over a connection. A name is told to the server, an address is not.
    pub async fn speak<S>(&self, stream: S, host: &str) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Whether HTTP/2 was agreed upon.
#[must_use]
pub fn is_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(b"h2")
}

fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_safe_default_protocol_versions().expect("ring has a suite for each version")
}

fn anyone(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let anyone = Arc::new(Anyone(builder.crypto_provider().clone()));
    builder.dangerous().with_custom_certificate_verifier(anyone)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let in_file = |source| TlsError::File { path: file.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(in_file)?.collect();
    let found = found.map_err(in_file)?;
    if found.is_empty() { Err(in_file(pem::Error::NoItemsFound)) } else { Ok(found) }
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        // None of them is verified.
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}
