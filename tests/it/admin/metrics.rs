//! The address at which Prometheus on other machines reads the metrics: TLS, certificates and
//! tokens.

mod api_server;

use std::fs;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use fixtures::authority::Authority;
use fixtures::wait::soon;
use http::Request;
use http_body_util::Full;
use probeshim::https;
use probeshim::tls::{PemSource, ServerTrust, Tls};
use tokio::net::TcpListener;
use url::Url;

use super::exchange;
use crate::procrun::Runtime as Procrun;
use crate::program::{Place, Running};
use api_server::ApiServer;

/// Maximum length of a body that a test reads.
const MAX_BYTES: usize = 1 << 20;

/// Returns the URL of the metrics, with the loopback address in place of the unspecified address.
async fn metrics_url(shim: &Running) -> String {
    let started = shim.logged("probeshim started").await;
    started["metrics"].as_str().unwrap().replace("0.0.0.0", "127.0.0.1")
}

/// Requests a path. Returns the status and the body, or the error of the connection.
async fn read(
    base: &str,
    path: &str,
    tls: Option<&Tls>,
    token: Option<&str>,
) -> Result<(u16, String), String> {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let url = Url::parse(base).unwrap();
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let answer = soon(https::send(&url, tls.cloned(), request, MAX_BYTES)).await;
    let (head, body) = answer.map_err(|error| error.to_string())?.into_parts();
    Ok((head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap()))
}

fn trusting(authority: &Authority, identity: Option<(&Path, &Path)>) -> Tls {
    let identity = identity.map(|(certificate, key)| (PemSource::File(certificate), PemSource::File(key)));
    Tls::client(ServerTrust::Ca(PemSource::File(&authority.certificate())), identity).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn metrics_are_served_at_any_address_with_any_host_name_and_nothing_else_is() {
    let place = Place::new();
    let runtime = Procrun::start_at(&place.at("runtime.sock"));
    let shim = place.start(&["--metrics-listen", "0.0.0.0:0", "--http-pods"]).await;
    let url = metrics_url(&shim).await;
    let address = url.strip_prefix("http://").unwrap();
    let status = async |method: &str, path: &str, host: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(address, &request).await.lines().next().unwrap_or_default().to_owned()
    };
    for (method, path, host, expected) in [
        ("GET", "/metrics", "node-7.example:9755", "HTTP/1.1 200 OK"),
        ("GET", "/metrics/probes", "192.0.2.7", "HTTP/1.1 200 OK"),
        ("HEAD", "/healthz", "node-7", "HTTP/1.1 200 OK"),
        ("GET", "/readyz", "node-7", "HTTP/1.1 200 OK"),
        ("POST", "/metrics", "node-7", "HTTP/1.1 405 Method Not Allowed"),
        ("GET", "/pods", "localhost", "HTTP/1.1 404 Not Found"),
        ("GET", "/", "localhost", "HTTP/1.1 404 Not Found"),
        ("GET", "/v1/calls", "localhost", "HTTP/1.1 404 Not Found"),
    ] {
        assert_eq!(status(method, path, host).await, expected, "{method} {path} {host}");
    }
    let metrics = read(&url, "/metrics", None, None).await.unwrap().1;
    assert!(metrics.contains("probeshim_build_info") && !metrics.contains("# EOF"), "{metrics}");
    let warning = shim.lines().into_iter().find(|line| {
        line["message"].as_str().is_some_and(|text| text.contains("every client that reaches this address"))
    });
    assert_eq!(warning.unwrap()["level"], "WARN");
    let shown = place.ask(&["status", "-o", "json"]).await.json()["metrics"].clone();
    assert_eq!(shown.as_str().unwrap().replace("0.0.0.0", "127.0.0.1"), url);
    runtime.end().await;
    let (status, body) = read(&url, "/readyz", None, None).await.unwrap();
    assert!(status == 503 && body.contains("runtime.sock"), "{status} {body}");
    assert_eq!(read(&url, "/healthz", None, None).await.unwrap(), (200, "ok\n".to_owned()));
}

#[tokio::test]
async fn clients_of_the_metrics_need_a_certificate_of_the_authority_if_there_is_one() {
    let place = Place::new();
    let authority = Authority::create(place.at("").as_path(), "authority");
    let other = Authority::create(place.at("").as_path(), "other");
    let (certificate, key) = authority.issue("server", &["127.0.0.1"]);
    let (client, client_key) = authority.issue("client", &["prometheus"]);
    let (foreign, foreign_key) = other.issue("foreign", &["prometheus"]);
    let ca = authority.certificate();
    let tls = ["--metrics-tls-cert", text(&certificate), "--metrics-tls-key", text(&key)];
    let more = [&["--metrics-listen", "127.0.0.1:0", "--metrics-client-ca", text(&ca)], &tls[..]].concat();
    let shim = place.start(&more).await;
    let url = metrics_url(&shim).await;
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let identity = Some((&*client, &*client_key));
    let answer = read(&url, "/metrics", Some(&trusting(&authority, identity)), None).await.unwrap();
    assert!(answer.0 == 200 && answer.1.contains("probeshim_build_info"), "{answer:?}");
    for identity in [None, Some((&*foreign, &*foreign_key))] {
        let answer = read(&url, "/metrics", Some(&trusting(&authority, identity)), None).await;
        assert!(answer.is_err(), "{identity:?}: {answer:?}");
    }
    let plain = read(&url.replace("https", "http"), "/metrics", None, None).await;
    assert!(plain.is_err(), "{plain:?}");
}

#[tokio::test]
async fn certificates_of_the_metrics_are_read_again_when_they_change() {
    let place = Place::new();
    let folder = place.at("");
    let (first, second) = (Authority::create(&folder, "first"), Authority::create(&folder, "second"));
    let (certificate, key) = first.issue("server", &["127.0.0.1"]);
    let tls = ["--metrics-tls-cert", text(&certificate), "--metrics-tls-key", text(&key)];
    let shim = place.start(&[&["--metrics-listen", "127.0.0.1:0"], &tls[..]].concat()).await;
    let url = metrics_url(&shim).await;
    let status = async |authority: &Authority| {
        read(&url, "/healthz", Some(&trusting(authority, None)), None).await.map(|(status, _)| status)
    };
    assert_eq!(status(&first).await, Ok(200));
    assert!(status(&second).await.is_err());
    second.issue("server", &["127.0.0.1"]);
    assert_eq!(status(&second).await, Ok(200));
    assert!(status(&first).await.is_err());
    // A key that does not belong to the certificate changes nothing.
    first.issue("unrelated", &["127.0.0.1"]);
    fs::copy(place.at("unrelated.key"), &key).unwrap();
    assert_eq!(status(&second).await, Ok(200));
    let warning =
        "certificates of the metrics have changed and cannot be used: the previous ones stay in use";
    shim.logged(warning).await;
}

#[tokio::test]
async fn clients_of_the_metrics_need_a_token_whose_user_may_get_the_metrics() {
    let place = Place::new();
    let authority = Authority::create(&place.at(""), "authority");
    let api_server = ApiServer::start(&place.at(""), &authority).await;
    let (certificate, key) = authority.issue("server", &["127.0.0.1"]);
    let (client, client_key) = authority.issue("client", &["prometheus"]);
    let ca = authority.certificate();
    let shim = place
        .start(&[
            "--metrics-listen",
            "127.0.0.1:0",
            "--metrics-tls-cert",
            text(&certificate),
            "--metrics-tls-key",
            text(&key),
            "--metrics-client-ca",
            text(&ca),
            "--metrics-token-review",
            text(&api_server.kubeconfig),
        ])
        .await;
    let url = metrics_url(&shim).await;
    let tls = trusting(&authority, None);
    let status = async |token: Option<&str>| read(&url, "/metrics", Some(&tls), token).await.unwrap();
    let (code, metrics) = status(Some("scraper")).await;
    assert!(code == 200 && metrics.contains("probeshim_build_info"), "{code} {metrics}");
    assert_eq!(status(None).await, (401, "Unauthorized\n".to_owned()));
    assert_eq!(status(Some("unknown")).await, (401, "Unauthorized\n".to_owned()));
    let refused = "Forbidden (user=system:serviceaccount:shop:web, verb=get, nonResourceURL=/metrics)\n";
    assert_eq!(status(Some("web")).await, (403, refused.to_owned()));
    let review = api_server.reviews().into_iter().find(|review| review["kind"] == "SubjectAccessReview");
    let expected = serde_json::json!({
        "user": "system:serviceaccount:monitoring:scraper",
        "uid": "uid-scraper",
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    assert_eq!(review.unwrap()["spec"], expected);
    assert!(api_server.authorizations().iter().all(|value| value == "Bearer of-probeshim"));

    // All decisions are reused, also for other paths.
    let before = api_server.reviews().len();
    assert_eq!(before, 5, "two tokens with two reviews, one with one");
    for (token, code) in [(Some("scraper"), 200), (Some("unknown"), 401), (Some("web"), 403)] {
        assert_eq!(status(token).await.0, code);
        assert_eq!(read(&url, "/healthz", Some(&tls), token).await.unwrap().0, code);
    }
    assert_eq!(api_server.reviews().len(), before);

    // A client with a certificate needs no token.
    let identified = trusting(&authority, Some((&client, &client_key)));
    assert_eq!(read(&url, "/metrics", Some(&identified), None).await.unwrap().0, 200);
    drop(api_server);
    let (code, body) = status(Some("new")).await;
    assert!(code == 503 && body.contains("cannot review the token"), "{code} {body}");
    // A flood of requests does not fill the log.
    for _ in 0..20 {
        assert_eq!(status(Some("another")).await.0, 503);
    }
    let warning = "clients of the metrics are refused: the API server cannot review their tokens";
    shim.logged(warning).await;
    let lines = shim.lines().iter().filter(|line| line["message"] == warning).count();
    assert!(lines < 20, "{lines} lines for 21 refused requests");
    assert_eq!(status(Some("scraper")).await.0, 200);
}

#[tokio::test]
async fn metrics_that_cannot_be_served_prevent_the_start() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    let refused = async |more: &[&str]| place.refused(place.command("shim.sock", more)).await;
    let (code, stderr) = refused(&["--metrics-listen", &busy]).await;
    let expected = format!("--metrics-listen: cannot listen on {busy}: Address already in use");
    assert!(code == 1 && stderr.contains(&expected), "{code} {stderr}");
    let missing = place.at("missing.pem");
    let tls = ["--metrics-tls-cert", text(&missing), "--metrics-tls-key", text(&missing)];
    let review = ["--metrics-token-review", "in-cluster"];
    let mut command: Command =
        place.command("shim.sock", &[&["--metrics-listen", "127.0.0.1:0"], &tls[..], &review].concat());
    command.env_remove("KUBERNETES_SERVICE_HOST");
    let (code, stderr) = place.refused(command).await;
    assert!(code == 1 && stderr.contains("missing.pem: "), "{code} {stderr}");
    assert!(stderr.contains("--metrics-token-review: in-cluster needs a pod"), "{stderr}");
    let (code, stderr) = refused(&["--metrics-listen", "127.0.0.1:0", review[0], "in-cluster"]).await;
    assert!(code == 2 && stderr.contains("tokens would be sent unencrypted"), "{code} {stderr}");
    assert!(!place.at("shim.sock").exists());
}
