//! TLS as probes have it: whose certificate it is does not matter.

use std::io;
use std::sync::{Arc, LazyLock};

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::prober::handler::dial::Connection;

/// What is spoken above TLS, the first one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

static CONNECTOR: LazyLock<TlsConnector> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    let anyone = Arc::new(Anyone(provider.clone()));
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("ring has a suite for each version");
    let mut config = builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth();
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    TlsConnector::from(Arc::new(config))
});

/// Takes every certificate.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

/// Speaks TLS over a connection. A name is told to the server, an address is not.
pub(super) async fn secured(connection: Connection, host: &str) -> io::Result<TlsStream<Connection>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    CONNECTOR.connect(name, connection).await
}

/// Whether HTTP/2 was agreed upon.
pub(super) fn is_http2(stream: &TlsStream<Connection>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(PROTOCOLS[0])
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
