//! Probe targets that flood the prober: only their own attempts fail, and the probes of other pods
//! continue.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fixtures::http2::wire::{SETTINGS, frame};
use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy, sink, split};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::assert_no_panic;
use crate::playing::{POLITE, is_clean, pod, start};
use crate::probing::lateness::serve;
use crate::probing::told;
use crate::procrun::{Runtime, until};
use crate::program::Place;

const PING: u8 = 6;

/// Number of bytes of a command's output that are kept, as by the kubelet.
const KEPT_OUTPUT: usize = 10 << 10;

/// Types of TLS records.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// Number of repetitions in one write.
const AT_ONCE: usize = 1000;

/// Bytes that a server sends: a beginning, and a part that is repeated without end.
#[derive(Clone)]
struct Flood {
    hello: Vec<u8>,
    repeated: Vec<u8>,
}

impl Flood {
    fn new(hello: &[u8], repeated: &[u8]) -> Self {
        Self { hello: hello.to_vec(), repeated: repeated.repeat(AT_ONCE) }
    }

    /// Starts a server that floods each client after its first byte and reads everything else.
    /// Returns the port.
    async fn serve(self, tls: Option<TlsAcceptor>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (flood, tls) = (self.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => flood.pour(stream).await,
                        Some(tls) => flood.pour(tls.accept(stream).await?).await,
                    }
                });
            }
        });
        port
    }

    async fn pour(self, stream: impl AsyncRead + AsyncWrite) -> std::io::Result<()> {
        let ((mut reader, mut writer), mut sink) = (split(stream), sink());
        reader.read_u8().await?;
        let writing = async {
            writer.write_all(&self.hello).await?;
            loop {
                writer.write_all(&self.repeated).await?;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            end = writing => end,
            _ = copy(&mut reader, &mut sink) => Ok(()),
        }
    }
}

/// Returns the TLS settings of a server for this protocol, with a self-signed certificate.
fn tls(protocol: &[u8]) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["server".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Returns a TLS record.
fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3][..], &length, payload].concat()
}

/// Returns a liveness probe with this handler and a period of one second.
fn probe(handler: &str, timeout: u32, threshold: u32) -> String {
    format!(
        ", livenessProbe: {{{handler}, periodSeconds: 1, timeoutSeconds: {timeout}, failureThreshold: {threshold}}}"
    )
}

/// Plays these pods and a healthy pod until each hostile pod has two events with its message and
/// the healthy pod has been probed again. Asserts that the healthy pod's probe did not fail, and
/// returns the events.
async fn harm_nobody_else(hostile: &[(&str, String, &str)]) -> Vec<Value> {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let (port, requests) = serve("HTTP/1.1 204 Fine\r\n\r\n".to_owned(), false).await;
    let handler = format!("httpGet: {{host: 127.0.0.1, port: {port}}}");
    let mut pods = pod("healthy", POLITE, "", &probe(&handler, 10, 1));
    for (name, handler, _) in hostile {
        pods += &pod(name, POLITE, "", &probe(handler, 2, 1_000));
    }
    fs::write(place.at("pods.yaml"), pods).unwrap();
    let mut playing = start(&place, place.at("pods.yaml").to_str().unwrap()).await;
    for (name, _, message) in hostile {
        told(&place, name, "Unhealthy", message, 2).await;
    }
    let before = requests.load(Ordering::Relaxed);
    until(async || (requests.load(Ordering::Relaxed) >= before + 3).then_some(())).await;
    let events = place.ask(&["events", "-o", "json"]).await.json();
    let of_healthy = events.as_array().unwrap().iter().filter(|event| event["pod"] == "healthy");
    let reasons: Vec<&str> = of_healthy.map(|event| event["reason"].as_str().unwrap()).collect();
    assert!(reasons.contains(&"Started"), "{reasons:?}");
    assert!(!reasons.iter().any(|reason| ["Unhealthy", "Killing"].contains(reason)), "{reasons:?}");
    assert_no_panic(&playing).await;
    playing.signal(Signal::TERM);
    assert_eq!(playing.ended().await, Some(143));
    is_clean(&place, runtime).await;
    events.as_array().unwrap().clone()
}

#[tokio::test]
async fn flooding_grpc_servers_fail_only_their_own_probes() {
    let (settings, ping) = (frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, &[7; 8]));
    let pings = Flood::new(&settings, &ping).serve(None).await;
    let all_settings = Flood::new(&[], &settings).serve(None).await;
    let handler = |port: u16| format!("grpc: {{port: {port}}}");
    let late = "Liveness probe failed: timeout: health rpc did not complete within 2s";
    harm_nobody_else(&[("pings", handler(pings), late), ("settings", handler(all_settings), late)]).await;
}

#[tokio::test]
async fn flooding_tls_servers_fail_only_their_own_probes() {
    // A handshake message of 16 MiB, in records of one byte each.
    let message = record(HANDSHAKE, &[2, 0xff, 0xff, 0xff]);
    let handshake = Flood::new(&message, &record(HANDSHAKE, &[7])).serve(None).await;
    let ciphers = Flood::new(&[], &record(CHANGE_CIPHER_SPEC, &[1])).serve(None).await;
    // A warning that has no meaning for a probe.
    let alerts = Flood::new(&[], &record(ALERT, &[1, 90])).serve(None).await;
    let heads = Flood::new(&[], b"HTTP/1.1 100 Continue\r\n\r\n").serve(Some(tls(b"http/1.1"))).await;
    let (settings, ping) = (frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, &[7; 8]));
    let pings = Flood::new(&settings, &ping).serve(Some(tls(b"h2"))).await;
    let handler = |port: u16| format!("httpGet: {{scheme: HTTPS, host: 127.0.0.1, port: {port}}}");
    let refused = "/\": tls: ";
    harm_nobody_else(&[
        ("handshake", handler(handshake), refused),
        ("ciphers", handler(ciphers), refused),
        ("alerts", handler(alerts), refused),
        // The limit of the heads or the timeout ends the attempt first, depending on the machine.
        ("heads", handler(heads), "Liveness probe failed: Get "),
        ("pings", handler(pings), "context deadline exceeded"),
    ])
    .await;
}

#[tokio::test]
async fn commands_with_endless_output_fail_only_their_own_probes() {
    let exec = |command: &str| format!("exec: {{command: [sh, -c, '{command}']}}");
    let events = harm_nobody_else(&[
        ("fast", exec("exec yes"), "timed out after 2s"),
        ("slow", exec("while true; do echo x; sleep 0.01; done"), "timed out after 2s"),
        ("long", exec("yes | head -c 1000000; exit 1"), "Liveness probe failed: y\n"),
    ])
    .await;
    let told = |event: &&Value| event["pod"] == "long" && event["reason"] == "Unhealthy";
    let kept = format!("Liveness probe failed: {}", "y\n".repeat(KEPT_OUTPUT / 2));
    for event in events.iter().filter(told) {
        let message = event["message"].as_str().unwrap();
        // An attempt whose output was late has another message.
        assert!(
            message == kept || message.contains("timed out"),
            "a message of {} bytes was kept",
            message.len()
        );
    }
}
