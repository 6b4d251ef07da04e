//! TLS for internal connections: to probed servers, whose certificates are not verified, to a
//! kubelet and to an API server; and for clients of the metrics. Names in certificates.

mod server;

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

use crate::regular_file::{self, MAX_SMALL_FILE_BYTES};

pub use server::{TlsServer, TlsServerFiles, has_client_certificate};

/// Connects to servers with TLS.
#[derive(Clone)]
pub struct Tls(TlsConnector);

/// Reason why TLS cannot be configured as requested.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or a text in PEM cannot be read, or has invalid content.
    #[error("{path}: {source}")]
    File {
        /// Path of the file, or name of the text.
        path: PathBuf,
        /// Error of the content.
        source: pem::Error,
    },
    /// The certificates and the key cannot be used together.
    #[error(transparent)]
    Unusable(#[from] Error),
}

/// Certificates or a key in PEM.
#[derive(Clone, Copy)]
pub enum PemSource<'a> {
    /// The content of a file.
    File(&'a Path),
    /// A text from another place, which `name` names in errors.
    Text {
        /// The place of the text.
        name: &'a str,
        /// The text.
        content: &'a [u8],
    },
}

/// Certificates that a server may have.
#[derive(Clone, Copy, Debug)]
pub enum ServerTrust<'a> {
    /// Any certificate.
    Insecure,
    /// A certificate that is signed by one of these certificates.
    Ca(PemSource<'a>),
}

/// Accepts every certificate that Go parses, as Go's clients do that verify none.
#[derive(Debug)]
struct NoVerifier(Arc<CryptoProvider>);

/// Go's reason to refuse a server without the key of its certificate
/// (`crypto/tls/handshake_client_tls13.go`: `readServerCertificate`).
const INVALID_SIGNATURE: &str = "invalid signature by the server certificate";

/// Go's reason to refuse a certificate (`crypto/x509/parser.go`: `parseCertificate`).
const NEGATIVE_SERIAL: &str = "failed to parse certificate from server: x509: negative serial number";

static OF_PROBES: LazyLock<Tls> = LazyLock::new(|| of_probes(&[b"h2", b"http/1.1"]));

static OF_GRPC_PROBES: LazyLock<Tls> = LazyLock::new(|| of_probes(&[b"h2"]));

fn of_probes(protocols: &[&[u8]]) -> Tls {
    let mut config = anyone(builder()).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Tls(TlsConnector::from(Arc::new(config)))
}

impl Tls {
    /// Returns the client for probes. It accepts any certificate, and uses HTTP/2 if the server
    /// supports it.
    #[must_use]
    pub fn insecure() -> &'static Self {
        &OF_PROBES
    }

    /// Returns the client for grpc probes. It accepts any certificate, and offers only HTTP/2.
    #[must_use]
    pub fn insecure_http2() -> &'static Self {
        &OF_GRPC_PROBES
    }

    /// Creates a client. `identity` contains the client's certificate and its key. Fails if a file
    /// cannot be read, or its content cannot be used.
    pub fn client(
        server: ServerTrust<'_>,
        identity: Option<(PemSource<'_>, PemSource<'_>)>,
    ) -> Result<Self, TlsError> {
        let config = match server {
            ServerTrust::Insecure => anyone(builder()),
            ServerTrust::Ca(source) => builder().with_root_certificates(roots(source)?),
        };
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                config.with_client_auth_cert(certificates(certificate)?, private_key(key)?)?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Performs the TLS handshake on a connection. The server receives `host` (SNI) if it is a
    /// name, but not if it is an IP address, of which a zone is no part.
    pub async fn connect<S>(&self, stream: S, host: &str) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let host = host.rsplit_once('%').map_or(host, |(address, _)| address);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Returns whether HTTP/2 was negotiated.
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
    let anyone = Arc::new(NoVerifier(builder.crypto_provider().clone()));
    builder.dangerous().with_custom_certificate_verifier(anyone)
}

impl PemSource<'_> {
    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::File(path) => {
                let read = regular_file::read(path, MAX_SMALL_FILE_BYTES);
                read.map_err(|error| self.error(pem::Error::Io(error)))
            }
            Self::Text { content, .. } => Ok((*content).to_owned()),
        }
    }

    fn error(&self, source: pem::Error) -> TlsError {
        let path = match self {
            Self::File(path) => path.to_path_buf(),
            Self::Text { name, .. } => PathBuf::from(name),
        };
        TlsError::File { path, source }
    }
}

impl std::fmt::Debug for PemSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Text { name, .. } => f.write_str(name),
        }
    }
}

fn certificates(source: PemSource<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = source.read()?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let found = found.map_err(|error| source.error(error))?;
    if found.is_empty() { Err(source.error(pem::Error::NoItemsFound)) } else { Ok(found) }
}

/// Returns the common name in the subject of the first certificate; `None` if it has none, or is no
/// X.509 certificate.
pub fn common_name(source: PemSource<'_>) -> Result<Option<String>, TlsError> {
    let first = certificates(source)?.into_iter().next();
    Ok(first.and_then(|certificate| {
        let (_, certificate) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        let name = certificate.subject().iter_common_name().next()?;
        Some(name.as_str().ok()?.to_owned())
    }))
}

fn private_key(source: PemSource<'_>) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&source.read()?).map_err(|error| source.error(error))
}

fn roots(source: PemSource<'_>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(source)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Returns whether the serial number of a certificate is negative. One that cannot be parsed has
/// none.
fn has_negative_serial(certificate: &CertificateDer<'_>) -> bool {
    x509_parser::parse_x509_certificate(certificate)
        .is_ok_and(|(_, certificate)| certificate.raw_serial().first().is_some_and(|byte| byte & 0x80 != 0))
}

impl NoVerifier {
    /// Verifies the signature of a handshake with the key of the server's certificate. Go does this
    /// without verifying the certificate, too. The signature of a P-521 key is accepted, because no
    /// algorithm of the provider verifies it, and so is that of a key that cannot be read.
    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let mapping = self.0.signature_verification_algorithms.mapping;
        let algorithms = mapping.iter().find(|(scheme, _)| *scheme == signed.scheme).map(|(_, known)| *known);
        let Some(algorithms) = algorithms else { return Ok(HandshakeSignatureValid::assertion()) };
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
            return Ok(HandshakeSignatureValid::assertion());
        };
        let key = &parsed.public_key().subject_public_key.data;
        if algorithms.iter().any(|it| it.verify_signature(key, message, signed.signature()).is_ok()) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(Error::General(format!("{INVALID_SIGNATURE}: {}", verification_failure(signed.scheme))))
        }
    }
}

/// Returns the error of Go's verification of a signature.
fn verification_failure(scheme: SignatureScheme) -> &'static str {
    match scheme {
        SignatureScheme::ECDSA_NISTP256_SHA256 | SignatureScheme::ECDSA_NISTP384_SHA384 => {
            "ECDSA verification failure"
        }
        SignatureScheme::ED25519 => "Ed25519 verification failure",
        _ => "crypto/rsa: verification error",
    }
}

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if std::iter::once(first).chain(others).any(has_negative_serial) {
            return Err(Error::General(NEGATIVE_SERIAL.to_owned()));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        // The verifier accepts the signatures of schemes that the provider lacks.
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

#[cfg(test)]
pub(crate) mod tests;
