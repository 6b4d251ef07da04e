//! Responses that probeshim and the kubelet's own code read, plain and over TLS.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fixtures::machine::{free_address, tool};
use fixtures::need;
use fixtures::wait::wait_for;
use regex::Regex;
use serde_json::json;

use super::grpc_responses::grpc_responses;
use super::handlers::{Theirs, Told, ours, serve};
use super::http2_responses::{http2_responses, settings};
use super::responses::responses;

/// Seconds that an attempt may take. No response needs any, and busy machines are slow.
const TIMEOUT_SECONDS: u32 = 60;

/// Maximum number of characters that are shown of a response or a result.
const MAX_SHOWN: usize = 400;

/// A server that passes what arrives over TLS on to another one.
struct TlsFront(Child);

impl TlsFront {
    fn start(address: SocketAddr, protocol: &str, fault: &str, to: SocketAddr) -> Result<Self, String> {
        let mut command = Command::new(tool("probes-1.36")?.join("probes"));
        let (address_text, to) = (address.to_string(), to.to_string());
        command.args(["tls", "-listen", &address_text, "-protocol", protocol, "-fault", fault, "-to", &to]);
        let front = Self(command.spawn().unwrap());
        wait_for("the server answers", || TcpStream::connect(address).ok());
        Ok(front)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Told {
    /// Returns the result without the port of the client, which differs in each attempt.
    fn without_port(self, ports: &Regex) -> Self {
        let without = |text: &str| ports.replace_all(text, "$1:PORT->").into_owned();
        Self { result: self.result, output: without(&self.output), error: without(&self.error) }
    }
}

/// Results of the same attempts by both.
#[derive(Debug, Default)]
struct Comparison {
    count: usize,
    differences: Vec<String>,
}

impl Comparison {
    fn add(&mut self, name: &str, ours: &Told, theirs: &Told) {
        let cut = |text: String| text.chars().take(MAX_SHOWN).collect::<String>();
        self.count += 1;
        if ours != theirs {
            let [ours, theirs] = [ours, theirs].map(|told| cut(format!("{told:?}")));
            self.differences.push(format!("{}\n  ours   {ours}\n  theirs {theirs}", cut(name.to_owned())));
        }
    }

    /// Panics if there are differences.
    fn finish(self) {
        let Self { count, differences } = self;
        assert!(differences.is_empty(), "{} of {count}:\n{}", differences.len(), differences.join("\n"));
    }
}

#[tokio::test]
async fn http1_responses_are_read_as_by_the_kubelets_own_code() {
    let mut theirs = need!(Theirs::start());
    let all = responses();
    let of_server = all.clone();
    let plain = serve(move |request, stream| {
        let number =
            request.split(' ').nth(1).and_then(|target| target.strip_prefix('/')?.parse::<usize>().ok());
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec();
        let response = number.and_then(|number| of_server.get(number)).unwrap_or(&ok);
        // The client may close the connection before the end of the response.
        let _ = stream.write_all(response);
    });
    let secure = free_address();
    let _front = need!(TlsFront::start(secure, "http/1.1", "", plain));
    let ports = Regex::new(r"(127\.0\.0\.1):\d+->").unwrap();
    let mut comparison = Comparison::default();
    for (number, response) in all.iter().enumerate() {
        for (scheme, port) in [("HTTP", plain.port()), ("HTTPS", secure.port())] {
            let get = json!({"path": format!("/{number}"), "port": port, "scheme": scheme});
            let probe = json!({"httpGet": get, "timeoutSeconds": TIMEOUT_SECONDS});
            let ours = ours("127.0.0.1", &probe).await.without_port(&ports);
            let theirs = theirs.attempt("127.0.0.1", &probe).without_port(&ports);
            comparison.add(&format!("{scheme} {}", response.escape_ascii()), &ours, &theirs);
        }
    }
    comparison.finish();
}

#[tokio::test]
async fn servers_that_refuse_tls_or_have_a_certificate_that_go_refuses_fail_with_the_kubelets_text() {
    let mut theirs = need!(Theirs::start());
    let plain = serve(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let ports = Regex::new(r"(127\.0\.0\.1):\d+->").unwrap();
    let mut comparison = Comparison::default();
    for fault in ["", "negative-serial", "client-certificate", "old"] {
        for protocol in ["http/1.1", "h2"] {
            let secure = free_address();
            let _front = need!(TlsFront::start(secure, protocol, fault, plain));
            let get = json!({"path": "/", "port": secure.port(), "scheme": "HTTPS"});
            let probe = json!({"httpGet": get, "timeoutSeconds": TIMEOUT_SECONDS});
            let ours = ours("127.0.0.1", &probe).await.without_port(&ports);
            let theirs = theirs.attempt("127.0.0.1", &probe).without_port(&ports);
            comparison.add(&format!("{fault} {protocol}"), &ours, &theirs);
        }
    }
    comparison.finish();
}

/// Number of bytes of the preface of a client.
const PREFACE: usize = 24;

/// Answers HTTP/2 connections with the response of which `current` is the number, each after the
/// head of the request has arrived.
pub(crate) fn serve_http2(responses: Vec<Vec<u8>>, current: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let response = responses[current.load(Ordering::SeqCst)].clone();
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.write_all(&settings());
                if read_request(&mut stream).is_some() {
                    // The client may close the connection before the end of the response.
                    let _ = stream.write_all(&response);
                    let _ = stream.shutdown(Shutdown::Write);
                }
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    address
}

/// Reads the preface and the frames up to the head of a request. `None` if the client ends before.
fn read_request(stream: &mut TcpStream) -> Option<()> {
    const HEADERS: u8 = 1;
    stream.read_exact(&mut [0; PREFACE]).ok()?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        stream.read_exact(&mut vec![0; length as usize]).ok()?;
        if header[3] == HEADERS {
            return Some(());
        }
    }
}

#[tokio::test]
async fn http2_responses_are_judged_as_by_the_kubelets_own_code() {
    let mut theirs = need!(Theirs::start());
    let all = http2_responses();
    let current = Arc::new(AtomicUsize::new(0));
    let frames = all.iter().map(|response| response.frames.clone()).collect();
    let plain = serve_http2(frames, current.clone());
    let secure = free_address();
    let _front = need!(TlsFront::start(secure, "h2", "", plain));
    let ports = Regex::new(r"(127\.0\.0\.1):\d+->").unwrap();
    let get = json!({"path": "/", "port": secure.port(), "scheme": "HTTPS"});
    let mut comparison = Comparison::default();
    for (number, response) in all.iter().enumerate() {
        current.store(number, Ordering::SeqCst);
        let timeout = if response.is_sent_again { 1 } else { TIMEOUT_SECONDS };
        let probe = json!({"httpGet": get, "timeoutSeconds": timeout});
        let mut ours = ours("127.0.0.1", &probe).await.without_port(&ports);
        let theirs = theirs.attempt("127.0.0.1", &probe).without_port(&ports);
        if response.is_sent_again {
            // Where Go waits when the time is over decides whether its text names it.
            ours.output.clone_from(&theirs.output);
        }
        comparison.add(&response.name, &ours, &theirs);
    }
    comparison.finish();
}

#[tokio::test]
async fn grpc_responses_are_judged_as_by_the_kubelets_own_code() {
    let mut theirs = need!(Theirs::start());
    let all = grpc_responses();
    let current = Arc::new(AtomicUsize::new(0));
    let frames = all.iter().map(|response| response.frames.clone()).collect();
    let server = serve_http2(frames, current.clone());
    let mut comparison = Comparison::default();
    for (number, response) in all.iter().enumerate() {
        current.store(number, Ordering::SeqCst);
        let probe =
            json!({"grpc": {"port": server.port(), "service": "a"}, "timeoutSeconds": TIMEOUT_SECONDS});
        let (ours, mut theirs) = (ours("127.0.0.1", &probe).await, theirs.attempt("127.0.0.1", &probe));
        // Each build of Go's protobuf has its own kinds and numbers of blanks.
        theirs.output = theirs.output.replace('\u{a0}', " ").replace("  ", " ");
        comparison.add(&response.name, &ours, &theirs);
    }
    comparison.finish();
}
