//! An API server that answers reviews of tokens and of access, and records them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fixtures::authority::Authority;
use probeshim::tls::{TlsServer, TlsServerFiles};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// An API server that knows the tokens `scraper`, whose user may get the metrics, and `web`.
pub(super) struct ApiServer {
    /// Path of a kubeconfig with the token `of-probeshim`.
    pub(super) kubeconfig: PathBuf,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    task: AbortHandle,
}

struct RecordedRequest {
    authorization: String,
    review: Value,
}

impl ApiServer {
    pub(super) async fn start(folder: &Path, authority: &Authority) -> Self {
        let (certificate, key) = authority.issue("api-server", &["127.0.0.1"]);
        let files = TlsServerFiles { certificate, key, client_ca: None, client_may_be_anonymous: false };
        let tls = Arc::new(TlsServer::open(files).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let recorded = requests.clone();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = tls.clone().accept(stream).await else { continue };
                answer(BufReader::new(stream), &recorded).await;
            }
        });
        let cluster =
            json!({"server": format!("https://{address}"), "certificate-authority": authority.certificate()});
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "probeshim"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "probeshim", "user": {"token": "of-probeshim"}}],
        });
        let path = folder.join("kubeconfig");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        Self { kubeconfig: path, requests, task: serving.abort_handle() }
    }

    /// Returns the reviews that clients have requested.
    pub(super) fn reviews(&self) -> Vec<Value> {
        self.requests.lock().unwrap().iter().map(|request| request.review.clone()).collect()
    }

    /// Returns the header `authorization` of each request.
    pub(super) fn authorizations(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.authorization.clone()).collect()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers the request on a connection.
async fn answer<S>(mut stream: BufReader<S>, recorded: &Mutex<Vec<RecordedRequest>>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut authorization, mut length, mut line) = (String::new(), 0, String::new());
    while stream.read_line(&mut line).await.unwrap() > 0 && line != "\r\n" {
        if let Some((name, value)) = line.split_once(": ") {
            match name {
                "authorization" => value.trim().clone_into(&mut authorization),
                "content-length" => length = value.trim().parse().unwrap(),
                _ => {}
            }
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    recorded.lock().unwrap().push(RecordedRequest { authorization, review: review.clone() });
    review["status"] = status(&review);
    let body = review.to_string();
    let head = "HTTP/1.1 201 Created\r\ncontent-type: application/json";
    let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// Returns the status of a review.
fn status(review: &Value) -> Value {
    let groups = ["system:serviceaccounts", "system:authenticated"];
    if review["kind"] == "SubjectAccessReview" {
        return json!({"allowed": review["spec"]["user"] == "system:serviceaccount:monitoring:scraper"});
    }
    let user = match review["spec"]["token"].as_str().unwrap() {
        "scraper" => ("system:serviceaccount:monitoring:scraper", "uid-scraper"),
        "web" => ("system:serviceaccount:shop:web", "uid-web"),
        _ => return json!({"authenticated": false}),
    };
    json!({"authenticated": true, "user": {"username": user.0, "uid": user.1, "groups": groups}})
}
