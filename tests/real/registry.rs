//! A registry on loopback, from which images can be pulled and to which nothing can be pushed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::sync::oneshot;

use super::image::{MANIFEST, Store};

/// A registry that serves until it is dropped. The host in an image's name does not matter to it.
#[derive(Debug)]
pub(crate) struct Registry {
    address: SocketAddr,
    _running: oneshot::Sender<()>,
}

impl Registry {
    /// Serves what is in a store.
    pub(crate) fn serve(store: Store) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (running, dropped) = oneshot::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let router = Router::new()
                    .route("/v2/", get(async || "{}"))
                    .route("/v2/{*what}", get(answer))
                    .with_state(Arc::new(store));
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    _ = axum::serve(listener, router) => {}
                    _ = dropped => {}
                }
            });
        });
        Self { address, _running: running }
    }

    /// The configuration with which containerd pulls every image from here.
    pub(crate) fn hosts_toml(&self) -> String {
        let url = format!("http://{}", self.address);
        format!("server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n")
    }
}

/// Answers for `<repository>/manifests/<tag or digest>` and `<repository>/blobs/<digest>`.
async fn answer(State(store): State<Arc<Store>>, Path(what): Path<String>) -> Response {
    let found = match (what.split_once("/manifests/"), what.split_once("/blobs/")) {
        (Some((_, digest)), _) if digest.starts_with("sha256:") => Some((digest.to_owned(), MANIFEST)),
        (Some((repository, tag)), _) => {
            let name = format!("/{repository}:{tag}");
            let manifest = store.manifests.iter().find(|(image, _)| image.ends_with(&name));
            manifest.map(|(_, manifest)| (manifest["digest"].as_str().unwrap().to_owned(), MANIFEST))
        }
        (None, Some((_, digest))) => Some((digest.to_owned(), "application/octet-stream")),
        (None, None) => None,
    };
    let blob = found.and_then(|(digest, kind)| Some((store.blobs.get(&digest)?.clone(), digest, kind)));
    match blob {
        Some((bytes, digest, kind)) => {
            let headers = [(header::CONTENT_TYPE, kind.to_owned()), (DIGEST, digest)];
            (headers, bytes).into_response()
        }
        None => (StatusCode::NOT_FOUND, r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#).into_response(),
    }
}

const DIGEST: header::HeaderName = header::HeaderName::from_static("docker-content-digest");
