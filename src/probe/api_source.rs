//! The API server as a source of the pods of a node: a list, and watches from its version on.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::name_sources::SourceState;
use super::source_update::SourceUpdate;
use crate::api_server::{ApiServer, ApiServerError, CredentialsError, KubeconfigError};
use crate::manifest::Source;
use crate::manifest::api_pods::{ApiPods, GONE, WatchEffect, list_path};

/// Time in which a list arrives, and in which a watch begins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a list.
const MAX_LIST_BYTES: usize = 64 << 20;

/// Shortest time in seconds after which the API server ends a watch, as in client-go.
const MIN_WATCH_SECONDS: u64 = 300;

/// Time after its end in which a watch is still awaited.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// First and longest delay after a failure. Each delay is twice the previous one, and up to half of
/// it is added, so that nodes do not return together.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The API server that a kubeconfig names. The kubeconfig, and the files that it names, are read
/// for each request, because the kubelet rotates its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiPodSource {
    /// Path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// Name of the node; `None` for the name in the client certificate.
    pub node_name: Option<String>,
}

/// Reason why the pods of a node cannot be read.
#[derive(Debug, thiserror::Error)]
enum ApiSourceError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client certificate cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The request failed.
    #[error(transparent)]
    Request(#[from] ApiServerError),
    /// The list cannot be read, or an event.
    #[error("the response is not about pods: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The name of the node is unknown.
    #[error(
        "nodeName must be set: the user of {0} has no client certificate of a node, with system:node:NAME as \
         common name"
    )]
    NoNodeName(PathBuf),
    /// No response came.
    #[error("no response within {REQUEST_TIMEOUT:?}")]
    TimedOut,
    /// The watch failed after its begin.
    #[error("the watch failed with status {0}: {1}")]
    Watch(u16, String),
}

/// Reason for which the pods are listed again.
enum Relist {
    /// The version is too old for a watch.
    Expired,
    /// The watch was interrupted.
    Interrupted,
}

/// The watch of one source.
struct PodWatch {
    source: ApiPodSource,
    pods: ApiPods,
    updates: mpsc::Sender<SourceUpdate>,
    /// Address of the API server, once it is known.
    url: Option<String>,
    /// Whether a list has arrived, so that pods are known.
    has_listed: bool,
}

impl ApiPodSource {
    /// Lists and watches the pods of the node until the receiver of the updates is dropped.
    pub(super) async fn run(self, redact: bool, updates: mpsc::Sender<SourceUpdate>) {
        let pods = ApiPods::new(redact);
        let mut watch = PodWatch { source: self, pods, updates, url: None, has_listed: false };
        let (mut delay, mut is_cached) = (MIN_RETRY_DELAY, true);
        while !watch.updates.is_closed() {
            match watch.list_and_watch(is_cached, &mut delay).await {
                // The cache may have the old version.
                Ok(Relist::Expired) => is_cached = false,
                Ok(Relist::Interrupted) => is_cached = true,
                Err(error) => {
                    is_cached = true;
                    watch.send(Some(error.to_string()), false).await;
                }
            }
            sleep(delay + delay.mul_f64(0.5 * fastrand::f64())).await;
            delay = (2 * delay).min(MAX_RETRY_DELAY);
        }
    }
}

impl PodWatch {
    /// Lists the pods, and watches them until they must be listed again.
    async fn list_and_watch(
        &mut self,
        is_cached: bool,
        delay: &mut Duration,
    ) -> Result<Relist, ApiSourceError> {
        let (server, node) = self.server()?;
        let list = timeout(REQUEST_TIMEOUT, server.get(&list_path(&node, is_cached), MAX_LIST_BYTES)).await;
        let list = list.map_err(|_| ApiSourceError::TimedOut)??;
        self.pods.set_list(&list)?;
        drop(list);
        self.has_listed = true;
        self.send(None, true).await;
        loop {
            let started = Instant::now();
            if let Some(reason) = self.watch().await? {
                return Ok(reason);
            }
            *delay = MIN_RETRY_DELAY;
            if started.elapsed() < MIN_RETRY_DELAY {
                sleep(MIN_RETRY_DELAY).await;
            }
        }
    }

    /// Watches the pods until the API server ends the watch. Returns the reason for which they must
    /// be listed again, if there is one.
    async fn watch(&mut self) -> Result<Option<Relist>, ApiSourceError> {
        let (server, node) = self.server()?;
        let seconds = MIN_WATCH_SECONDS + fastrand::u64(0..MIN_WATCH_SECONDS);
        let deadline = Instant::now() + Duration::from_secs(seconds) + WATCH_GRACE;
        let lines = timeout(REQUEST_TIMEOUT, server.lines(&self.pods.watch_path(&node, seconds))).await;
        let mut lines = match lines.map_err(|_| ApiSourceError::TimedOut)? {
            Err(ApiServerError::Refused { status, .. }) if status == GONE => {
                return Ok(Some(Relist::Expired));
            }
            lines => lines?,
        };
        loop {
            let line = match timeout_at(deadline, lines.next()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(_)) | Err(_) => return Ok(Some(Relist::Interrupted)),
            };
            if line.is_empty() {
                continue;
            }
            match self.pods.apply(&line)? {
                WatchEffect::Unchanged => {}
                WatchEffect::Changed => self.send(None, true).await,
                WatchEffect::Failed(GONE, _) => return Ok(Some(Relist::Expired)),
                WatchEffect::Failed(code, message) => return Err(ApiSourceError::Watch(code, message)),
            }
        }
    }

    /// Returns the API server and the name of the node, as the files have them now.
    fn server(&mut self) -> Result<(ApiServer, String), ApiSourceError> {
        let ApiPodSource { kubeconfig, node_name } = &self.source;
        let server = ApiServer::from_kubeconfig(kubeconfig)?;
        self.url = Some(server.url().as_str().trim_end_matches('/').to_owned());
        let node = match node_name {
            Some(name) => Some(name.clone()),
            None => server.node_name()?,
        };
        let node = node.ok_or_else(|| ApiSourceError::NoNodeName(kubeconfig.clone()))?;
        Ok((server, node))
    }

    /// Publishes the state of the source. `has_changed`: the pods are published too.
    async fn send(&self, problem: Option<String>, has_changed: bool) {
        let manifests = self.pods.manifests();
        let place = self.url.clone();
        let state = SourceState {
            source: Source::ApiServer,
            place: place.unwrap_or_else(|| format!("of {}", self.source.kubeconfig.display())),
            pods: manifests.iter().count(),
            problem: problem.clone(),
        };
        let problems = problem.into_iter().chain(self.pods.problems()).collect();
        let pods = Some(manifests).filter(|_| has_changed && self.has_listed);
        // The receiver may be gone.
        let _ = self.updates.send(SourceUpdate::Pods { state, pods, problems }).await;
    }
}
