//! Tests of clients and servers that prove their identity with certificates.

use std::fs;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion};

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

#[test]
fn the_common_name_of_a_certificate_is_that_of_its_subject() {
    let authority = Authority::new("some authority");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:node-1");
    let pem = params.signed_by(&key, &authority.1).unwrap().pem();
    let name = |pem: &str| common_name(PemSource::Text { name: "test", content: pem.as_bytes() });
    assert_eq!(name(&pem).unwrap().as_deref(), Some("system:node:node-1"));
    // The kubelet's file has the key before or after the certificate.
    let with_key = format!("{}{pem}", key.serialize_pem());
    assert_eq!(name(&with_key).unwrap().as_deref(), Some("system:node:node-1"));
    assert!(name("no certificate").is_err());
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

/// Returns a server with a self-signed certificate and one application protocol, for any client.
pub(crate) fn server_for_anyone(protocol: &[u8]) -> TlsAcceptor {
    let (certificate, key) = Authority::new("anyone").sign("localhost");
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = builder.unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
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
    let pem = |path: &'_ PathBuf| PemSource::File(Box::leak(path.clone().into_boxed_path()));
    let (identity, server) = (Some((pem(&certificate), pem(&key))), server(&authority));
    for (row, trusted, identity, name, expected) in [
        ("both certificates are trusted", ServerTrust::Ca(pem(&own)), identity, "node", "hello"),
        ("any server certificate is accepted", ServerTrust::Insecure, identity, "other", "hello"),
        (
            "another authority signed the server's certificate",
            ServerTrust::Ca(pem(&other_ca)),
            identity,
            "node",
            "UnknownIssuer",
        ),
        ("the server has another name", ServerTrust::Ca(pem(&own)), identity, "other", "not valid for name"),
        ("the client has no certificate", ServerTrust::Ca(pem(&own)), None, "node", "CertificateRequired"),
    ] {
        let tls = Tls::client(trusted, identity).unwrap();
        let (Ok(said) | Err(said)) = said(&server, &tls, name).await;
        assert!(said.contains(expected), "{row}: {said}");
    }
    let missing = dir.path().join("missing.pem");
    for (trusted, identity, wrong) in [
        (&missing, identity, &missing),
        (&key, identity, &key),
        (&own, Some((pem(&certificate), pem(&own))), &own),
        (&own, Some((pem(&key), pem(&key))), &key),
    ] {
        let error = Tls::client(ServerTrust::Ca(pem(trusted)), identity).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", wrong.display())), "{error}");
    }
}

/// Returns a server that has the certificate of one key and signs with another.
fn server_with_another_key(version: &'static SupportedProtocolVersion) -> TlsAcceptor {
    let authority = Authority::new("anyone");
    let ((certificate, _), (_, key)) = (authority.sign("localhost"), authority.sign("localhost"));
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.der().clone()], key));
    let config = builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn a_server_without_the_key_of_its_certificate_is_refused_though_the_certificate_is_not_verified() {
    let anyone = Tls::client(ServerTrust::Insecure, None).unwrap();
    assert_eq!(said(&server_for_anyone(b"h2"), &anyone, "localhost").await.as_deref(), Ok("hello"));
    for version in [&TLS12, &TLS13] {
        let error = said(&server_with_another_key(version), &anyone, "localhost").await.unwrap_err();
        let expected = "invalid signature by the server certificate: ECDSA verification failure";
        assert!(error.contains(expected), "{version:?}: {error}");
    }
}

#[tokio::test]
async fn the_zone_of_an_address_is_no_part_of_the_name_of_a_server() {
    let anyone = Tls::client(ServerTrust::Insecure, None).unwrap();
    assert_eq!(said(&server_for_anyone(b"h2"), &anyone, "fe80::1%eth0").await.as_deref(), Ok("hello"));
}
