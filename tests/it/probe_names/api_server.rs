//! An API server that knows the pods of one node, and behaves as with the Node authorizer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixtures::authority::Authority;
use fixtures::wait::soon;
use probeshim::tls::{TlsServer, TlsServerFiles};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

/// Name of the node.
pub(super) const NODE: &str = "node-1";

/// A change of all watches.
#[derive(Clone, Debug)]
pub(super) enum WatchAction {
    /// An event: its type and its object.
    Event(&'static str, Value),
    /// The regular end.
    End,
    /// The connection breaks.
    Break,
}

/// The API server, which ends when it is dropped.
pub(super) struct ApiServer {
    shared: Arc<Shared>,
    address: String,
    task: AbortHandle,
}

struct Shared {
    list: Mutex<Value>,
    requests: Mutex<Vec<String>>,
    actions: broadcast::Sender<WatchAction>,
}

impl ApiServer {
    /// Starts a server whose clients need a certificate of the authority.
    pub(super) async fn start(authority: &Authority, list: Value) -> Self {
        let (certificate, key) = authority.issue("api-server", &["127.0.0.1"]);
        let client_ca = Some(authority.certificate());
        let files = TlsServerFiles { certificate, key, client_ca, client_may_be_anonymous: true };
        let tls = Arc::new(TlsServer::open(files).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (list, requests) = (Mutex::new(list), Mutex::default());
        let shared = Arc::new(Shared { list, requests, actions: broadcast::channel(64).0 });
        let of_task = shared.clone();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, shared) = (tls.clone(), of_task.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    // The client may leave at any time.
                    let _ = answer(BufReader::new(stream), &shared).await;
                });
            }
        });
        Self { shared, address, task: serving.abort_handle() }
    }

    /// Writes a kubeconfig with this user, and returns its path.
    pub(super) fn kubeconfig(&self, folder: &Path, authority: &Authority, user: &Value) -> PathBuf {
        let server = format!("https://{}", self.address);
        let cluster = json!({"server": server, "certificate-authority": authority.certificate()});
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default",
            "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
            "clusters": [{"name": "default", "cluster": cluster}],
            "users": [{"name": "default", "user": user}],
        });
        let path = folder.join("kubelet.conf");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    /// Replaces the list of pods.
    pub(super) fn set_list(&self, list: Value) {
        *self.shared.list.lock().unwrap() = list;
    }

    /// Does something to the watch, which must have begun.
    pub(super) fn act(&self, action: WatchAction) {
        self.shared.actions.send(action).unwrap();
    }

    /// Returns the paths of all requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits for the nth request that fulfils a condition, and returns its path.
    pub(super) async fn request(&self, nth: usize, is_it: impl Fn(&str) -> bool) -> String {
        let arrived = async {
            loop {
                if let Some(path) = self.requests().into_iter().filter(|path| is_it(path)).nth(nth) {
                    return path;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(arrived).await
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers the request on a connection.
async fn answer<S>(mut stream: BufReader<S>, shared: &Shared) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut head, mut line) = (String::new(), String::new());
    while stream.read_line(&mut line).await? > 0 && line != "\r\n" {
        head += &line;
        line.clear();
    }
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let mut actions = shared.actions.subscribe();
    shared.requests.lock().unwrap().push(path.clone());
    let selector = format!("fieldSelector=spec.nodeName%3D{NODE}");
    if !path.split(['?', '&']).any(|parameter| parameter == selector) {
        let message = "pods is forbidden: User \"system:node:node-1\" cannot list resource \"pods\" in API group \"\" \
                       at the cluster scope: can only list/watch pods with spec.nodeName field selector";
        let body = json!({"kind": "Status", "code": 403, "message": message}).to_string();
        let text = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await?;
        return stream.shutdown().await;
    }
    if !path.contains("watch=true") {
        let body = shared.list.lock().unwrap().to_string();
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await?;
        return stream.shutdown().await;
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    stream.flush().await?;
    loop {
        match actions.recv().await.unwrap() {
            WatchAction::Event(kind, object) => {
                let line = json!({"type": kind, "object": object}).to_string() + "\n";
                // An event may arrive in pieces.
                let (one, other) = line.split_at(line.len() / 2);
                for piece in [one, other] {
                    stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
                    stream.flush().await?;
                }
            }
            WatchAction::End => {
                stream.write_all(b"0\r\n\r\n").await?;
                return stream.shutdown().await;
            }
            WatchAction::Break => return Ok(()),
        }
    }
}
