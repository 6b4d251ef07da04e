//! TLS for internal connections: to probed servers, whose certificates are not verified, and to a
//! kubelet.

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

/// Connects to servers with TLS.
#[derive(Clone)]
pub struct Tls(TlsConnector);

/// Reason why TLS cannot be configured as requested.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has invalid content.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file.
        source: pem::Error,
    },
    /// The certificates and the key cannot be used together.
    #[error(transparent)]
    Unusable(#[from] Error),
}

/// Certificates that a server may have.
#[derive(Clone, Copy, Debug)]
pub enum ServerTrust<'a> {
    /// Any certificate.
    Insecure,
    /// A certificate that is signed by a certificate in this file.
    CaFile(&'a Path),
}

/// Accepts every certificate.
#[derive(Debug)]
struct NoVerifier(Arc<CryptoProvider>);

static OF_PROBES: LazyLock<Tls> = LazyLock::new(|| {
    let mut config = anyone(builder()).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Tls(TlsConnector::from(Arc::new(config)))
});

impl Tls {
    /// Returns the client for probes. It accepts any certificate, and uses HTTP/2 if the server
    /// supports it.
    #[must_use]
    pub fn insecure() -> &'static Self {
        &OF_PROBES
    }

    /// Creates a client. `identity` contains the paths of the client's certificate and of its key.
    /// Fails if a file cannot be read, or its content cannot be used.
    pub fn client(server: ServerTrust<'_>, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let config = match server {
            ServerTrust::Insecure => anyone(builder()),
            ServerTrust::CaFile(file) => {
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
                let key = PrivateKeyDer::from_pem_slice(&pem_file(key).map_err(in_file)?).map_err(in_file)?;
                config.with_client_auth_cert(certificates(certificate)?, key)?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Performs the TLS handshake on a connection. The server receives `host` (SNI) if it is a
    /// name, but not if it is an IP address.
    pub async fn connect<S>(&self, stream: S, host: &str) -> io::Result<TlsStream<S>>
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

fn pem_file(path: &Path) -> Result<Vec<u8>, pem::Error> {
    regular_file::read(path, MAX_SMALL_FILE_BYTES).map_err(pem::Error::Io)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let in_file = |source| TlsError::File { path: file.to_owned(), source };
    let content = pem_file(file).map_err(in_file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let found = found.map_err(in_file)?;
    if found.is_empty() { Err(in_file(pem::Error::NoItemsFound)) } else { Ok(found) }
}

impl ServerCertVerifier for NoVerifier {
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
        // The verifier accepts every signature, so it can offer all schemes.
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::server::WebPkiClientVerifier;

    use super::*;

    /// A certificate authority.
    struct Authority(Certificate, Issuer<'static, KeyPair>);

    impl Authority {
        fn new(name: &str) -> Self {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            Self(params.self_signed(&key).unwrap(), Issuer::new(params, key))
        }

        fn sign(&self, name: &str) -> (Certificate, KeyPair) {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([name.to_owned()]).unwrap();
            (params.signed_by(&key, &self.1).unwrap(), key)
        }
    }

    /// Returns a server named `node` that accepts only clients with a certificate signed by this
    /// authority.
    fn server(authority: &Authority) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.0.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let (certificate, key) = authority.sign("node");
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_client_cert_verifier(verifier.build().unwrap());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate.der().clone()], key).unwrap()))
    }

    /// Returns the text that the server sends to a client, or the error of the connection.
    async fn said(server: &TlsAcceptor, tls: &Tls, name: &str) -> Result<String, String> {
        let (near, far) = duplex(1 << 16);
        let serve = async {
            if let Ok(mut stream) = server.accept(far).await {
                let _ = stream.write_all(b"hello").await;
                let _ = stream.shutdown().await;
            }
        };
        let ask = async {
            let mut said = String::new();
            tls.connect(near, name).await?.read_to_string(&mut said).await?;
            Ok(said)
        };
        let (said, ()) = tokio::join!(ask, serve);
        said.map_err(|error: io::Error| error.to_string())
    }

    #[tokio::test]
    async fn server_and_client_prove_their_identity_with_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (authority, other_authority) = (Authority::new("own"), Authority::new("other"));
        let (certificate, key) = authority.sign("client");
        let own = file("ca.pem", authority.0.pem());
        let other_ca = file("other.pem", other_authority.0.pem());
        let certificate = file("client.pem", certificate.pem());
        let key = file("client.key", key.serialize_pem());
        let (identity, server) = (Some((&*certificate, &*key)), server(&authority));
        for (row, trusted, identity, name, expected) in [
            ("both certificates are trusted", ServerTrust::CaFile(&own), identity, "node", "hello"),
            ("any server certificate is accepted", ServerTrust::Insecure, identity, "other", "hello"),
            (
                "another authority signed the server's certificate",
                ServerTrust::CaFile(&other_ca),
                identity,
                "node",
                "UnknownIssuer",
            ),
            (
                "the server has another name",
                ServerTrust::CaFile(&own),
                identity,
                "other",
                "not valid for name",
            ),
            ("the client has no certificate", ServerTrust::CaFile(&own), None, "node", "CertificateRequired"),
        ] {
            let tls = Tls::client(trusted, identity).unwrap();
            let (Ok(said) | Err(said)) = said(&server, &tls, name).await;
            assert!(said.contains(expected), "{row}: {said}");
        }
        let missing = dir.path().join("missing.pem");
        for (trusted, identity, wrong) in [
            (&missing, identity, &missing),
            (&key, identity, &key),
            (&own, Some((&*certificate, &*own)), &own),
            (&own, Some((&*key, &*key)), &key),
        ] {
            let error = Tls::client(ServerTrust::CaFile(trusted), identity).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}: ", wrong.display())), "{error}");
        }
    }
}
