//! Handlers compared with the kubelet's own code: both make the same probe attempt and report the
//! same result with the same message.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use fixtures::machine::{free_address, tool};
use fixtures::need;
use fixtures::wait::wait_for;
use probeshim::cri::MeteredChannel;
use probeshim::handler::{ContainerNames, Executor, ProbeOutcome, ProbeTarget, attempt};
use probeshim::manifest::{ContainerPort, ContainerSpec};
use probeshim::probe::SpecResolver;
use probeshim::socket::SocketPath;
use regex::Regex;
use serde_json::{Value, json};

/// A process that runs the kubelet's code.
pub(crate) struct Theirs {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Result of a probe attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) result: String,
    pub(crate) output: String,
    pub(crate) error: String,
}

impl Theirs {
    pub(crate) fn start() -> Result<Self, String> {
        let mut command = Command::new(tool("probes-1.36")?.join("probes"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Ok(Self { process, to, from })
    }

    pub(crate) fn attempt(&mut self, host: &str, probe: &Value) -> Told {
        let container = json!({"name": "main", "ports": [{"name": "http", "containerPort": 1}]});
        let asked = json!({"host": host, "probe": probe, "container": container});
        writeln!(self.to, "{asked}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let text = |field: &str| told[field].as_str().unwrap().to_owned();
        // probeshim does not know the name server that answered the lookup.
        let server = Regex::new(r"(lookup \S+) on \S+:53: ").unwrap();
        let output = server.replace(&text("output"), "$1: ").into_owned();
        Told { result: text("result"), output, error: text("error") }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes the same probe attempt with probeshim's handler.
pub(crate) async fn ours(host: &str, probe: &Value) -> Told {
    let container = json!({
        "name": "main", "ports": [{"name": "http", "containerPort": 1}], "livenessProbe": probe,
    });
    let folder = tempfile::tempdir().unwrap();
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}});
    std::fs::write(folder.path().join("a.json"), manifest.to_string()).unwrap();
    let specs = SpecResolver::read(&[folder.path()]).unwrap_or_else(|errors| panic!("{probe}: {errors:?}"));
    let described = specs.describe_all().remove(0);
    let probe = described.probe.unwrap();
    let spec = ContainerSpec {
        ports: vec![ContainerPort { name: Some("http".to_owned()), number: 1 }],
        ..ContainerSpec::named("main")
    };
    let nobody = MeteredChannel::new(&SocketPath::parse("/nowhere.sock").unwrap());
    let target = ProbeTarget { container_id: "", container: &spec, pod_ip: host };
    let told = |result: &str, output: &str, error: &str| Told {
        result: result.to_owned(),
        output: output.to_owned(),
        error: error.to_owned(),
    };
    let executor = Executor::new(nobody.client(), None, false);
    match attempt(&probe, &target, &ContainerNames::default(), &executor).await.result {
        Ok(ProbeOutcome::Success(output)) => told("success", &output, ""),
        Ok(ProbeOutcome::Warning(output)) => told("warning", &output, ""),
        Ok(ProbeOutcome::Failure(output)) => told("failure", &output, ""),
        Err(error) => told(error.outcome(), "", &error.to_string()),
    }
}

/// A server written with Go's libraries, with HTTP, gRPC and HTTPS on these addresses.
struct Served(Child);

impl Served {
    fn start(addresses: [SocketAddr; 3]) -> Result<Self, String> {
        let mut command = Command::new(tool("probes-1.36")?.join("probes"));
        let [http, grpc, https] = addresses.map(|address| address.to_string());
        let served =
            Self(command.args(["serve", "-http", &http, "-grpc", &grpc, "-https", &https]).spawn().unwrap());
        for address in addresses {
            wait_for("a server answers", || TcpStream::connect(address).ok());
        }
        Ok(served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers every connection with `answer` until the process ends.
pub(crate) fn serve(answer: impl Fn(&str, &mut TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, mut stream) = (answer.clone(), stream.unwrap());
            thread::spawn(move || {
                let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => break,
                        Ok(read) => request.extend_from_slice(&buffer[..read]),
                    }
                    if request.starts_with(b"\x16") || request.starts_with(b"PRI") {
                        break;
                    }
                }
                answer(&String::from_utf8_lossy(&request), &mut stream);
            });
        }
    });
    address
}

/// Returns the address of a server with an answer for each path.
fn website() -> SocketAddr {
    serve(|request, stream| {
        let mut words = request.split(' ');
        let target = words.nth(1).unwrap_or_default().to_owned();
        let page = |head: &str, body: &str| {
            format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        };
        let answer = match target.split('?').next().unwrap() {
            "/echo" => {
                let mut lines: Vec<&str> = request.trim_end().split("\r\n").collect();
                // The versions of the user agents differ.
                lines.retain(|line| !line.starts_with("User-Agent: kube-probe/"));
                page("200 OK", &lines.join("\n"))
            }
            "/500" => page("500 No", "secret"),
            "/300" => page("300 Choose", "a or b"),
            "/101" => "HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n".to_owned(),
            "/close" => String::new(),
            "/close-in-head" => "HTTP/1.1 200 OK\r\nA: b".to_owned(),
            "/close-after-interim" => "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
            "/interim" => {
                "HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000)
                    + "HTTP/1.1 103\nA: b\n\n"
                    + &page("200 OK", "ok")
            }
            "/large-head" => page(&format!("200 OK\r\nA: {}", "x".repeat(1 << 20)), "ok"),
            "/flood" => {
                let heads = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000);
                while stream.write_all(heads.as_bytes()).is_ok() {}
                return;
            }
            "/nonsense" => "nonsense\r\n\r\n".to_owned(),
            "/short" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_owned(),
            "/chunked" => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned()
            }
            "/long" => page("200 OK", &"x".repeat(20_000)),
            "/stall" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun").unwrap();
                thread::park_timeout(Duration::from_secs(5));
                return;
            }
            "/never" => {
                thread::park_timeout(Duration::from_secs(5));
                return;
            }
            "/to" => {
                let location = target.split_once('?').map_or("", |(_, location)| location);
                page(&format!("302 Found\r\nLocation: {location}"), "moved")
            }
            "/loop" => page("302 Found\r\nLocation: /loop", ""),
            "/ok" => page("200 OK", "ok"),
            _ => page("200 OK", &target),
        };
        stream.write_all(answer.as_bytes()).unwrap();
    })
}

/// Paths of httpGet probes: different spellings, and pages that end in different ways.
const PATHS: [&str; 42] = [
    "/a b?c d",
    "/echo?c d",
    "a:b",
    "a:/b",
    "http:///b",
    "http://me:secret@other/echo",
    "//me@other/echo",
    "http://other:x/b",
    "/*",
    "*",
    "/echo#a%zz",
    "/ok",
    "ok",
    "/a b?c",
    "/100%",
    "/a%2Fb%zz",
    "/é",
    "/ok#part",
    "http://other/x?y=z",
    "//other/x",
    "1:b",
    "?q",
    "/echo",
    "/500",
    "/300",
    "/101",
    "/close",
    "/short",
    "/chunked",
    "/long",
    "/stall",
    "/never",
    "/loop",
    "/to",
    "/to?/ok",
    "/to?ok",
    "/to?/to?/ok",
    "/to?http://0.0.0.0/",
    "/to?http://127.0.0.1:1/",
    "/to?//127.0.0.1:1/",
    "/a/../b",
    "/%41",
];

#[tokio::test]
async fn probe_attempts_have_the_results_of_the_kubelets_own_code() {
    let mut theirs = need!(Theirs::start());
    let (site, closed) =
        (website(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap());
    let http = |path: &str| json!({"path": path, "port": site.port(), "scheme": "HTTP"});
    let get = |get: Value| json!({"httpGet": get, "timeoutSeconds": 1});
    let with = |path: &str, more: Value| {
        let mut page = http(path);
        page.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        get(page)
    };
    let headers = |headers: &[(&str, &str)]| {
        let headers: Vec<Value> =
            headers.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        with("/echo", json!({"httpHeaders": headers}))
    };
    let mut probes: Vec<Value> = PATHS.iter().map(|path| get(http(path))).collect();
    probes.extend([
        headers(&[("x-MUFFINS-or-cupcakes", "b"), ("X-Muffins-Or-Cupcakes", "a")]),
        headers(&[("Host", "example.com"), ("Accept", ""), ("Accept-Encoding", "gzip")]),
        headers(&[("User-Agent", "me"), ("Accept", "text/html"), ("DNT", "1")]),
        headers(&[("X-A", " spaced\t")]),
        headers(&[("X-A", "a\u{1}b")]),
        headers(&[("Connection", "keep-alive")]),
        headers(&[("Connection", "Close")]),
        headers(&[("Connection", "Upgrade"), ("Upgrade", "x")]),
        headers(&[("Authorization", "mine"), ("Zebra", "1"), ("alpha", "2"), ("Cookie", "a=b")]),
        headers(&[("Referer", "mine"), ("Te", "gzip"), ("Content-Length", "5"), ("Expect", "100-continue")]),
        headers(&[("Host", "a b")]),
        headers(&[("Host", "größe.test:80")]),
        headers(&[("Host", "[fe80::1%eth0]:80")]),
        headers(&[("X-A", "größe")]),
        with("/ok", json!({"port": closed.port()})),
        with("/ok", json!({"port": "http"})),
        with("/ok", json!({"port": "nobody"})),
        with("/ok", json!({"host": "nobody.invalid"})),
        with("/ok", json!({"host": "a b"})),
        with("/ok", json!({"host": "localhost"})),
        with("/ok", json!({"host": "[127.0.0.1]"})),
        with("/ok", json!({"host": "[::1]"})),
        with("/ok", json!({"host": "127.1"})),
        with("/ok", json!({"host": "2130706433"})),
        with("/ok", json!({"host": "0x7f.1"})),
        with("/ok", json!({"host": "fe80::1%nosuch"})),
        with("/ok", json!({"host": "fe80::1%25nosuch"})),
        with("/ok", json!({"host": "größe.invalid"})),
        with("/ok", json!({"host": "a%b"})),
        with("/ok", json!({"host": "a@b"})),
        with("/ok", json!({"host": "a/b"})),
        with("/ok", json!({"host": "127.0.0.1:1"})),
        with("/ok", json!({"host": "127.0.0.1."})),
        with("/ok", json!({"host": "LOCALHOST"})),
        with("/ok", json!({"scheme": "HTTPS"})),
        json!({"tcpSocket": {"port": site.port()}, "timeoutSeconds": 1}),
        json!({"tcpSocket": {"port": closed.port()}, "timeoutSeconds": 1}),
        json!({"tcpSocket": {"port": "nobody"}, "timeoutSeconds": 1}),
        json!({"tcpSocket": {"port": 1, "host": "nobody.invalid"}, "timeoutSeconds": 1}),
        json!({"grpc": {"port": closed.port(), "service": ""}, "timeoutSeconds": 1}),
        json!({"grpc": {"port": site.port(), "service": ""}, "timeoutSeconds": 1}),
    ]);
    let addresses = [(); 3].map(|()| free_address());
    let _served = need!(Served::start(addresses));
    let [plain, health, secure] = addresses.map(|address| address.port());
    let protocol = |host: &str| {
        let page = json!({"path": "/protocol", "port": secure, "scheme": "HTTPS", "host": host});
        json!({"httpGet": page, "timeoutSeconds": 2})
    };
    for (port, scheme) in [(plain, "HTTP"), (secure, "HTTPS")] {
        for heads in ["count=2000&size=10", "count=3000&size=4000"] {
            let page = json!({"path": format!("/interim?{heads}"), "port": port, "scheme": scheme});
            probes.push(json!({"httpGet": page, "timeoutSeconds": 60}));
        }
    }
    for path in ["/interim", "/large-head", "/flood", "/close-in-head", "/close-after-interim"] {
        probes.push(json!({"httpGet": http(path), "timeoutSeconds": 60}));
    }
    probes.extend([
        protocol("127.0.0.1"),
        protocol("localhost"),
        json!({"httpGet": {"path": "/protocol", "port": secure}, "timeoutSeconds": 2}),
        json!({"grpc": {"port": health, "service": ""}, "timeoutSeconds": 2}),
        json!({"grpc": {"port": health, "service": "nobody"}, "timeoutSeconds": 2}),
    ]);
    let mut differences = Vec::new();
    for probe in probes {
        let (ours, theirs) = (ours("127.0.0.1", &probe).await, theirs.attempt("127.0.0.1", &probe));
        if ours != theirs {
            differences.push(format!("{probe}\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
