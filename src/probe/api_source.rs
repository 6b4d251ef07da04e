//! The API server as a source of the pods of a node: a list, and watches from its version on.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::name_sources::SourceState;
use super::source_update::SourceUpdate;
use crate::api_server::{ApiServer, ApiServerError, CredentialsError, KubeconfigError, Lines};
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

/// Time after the head of its response at which a watch counts as one that works, so that its end
/// is no failure of the source. The time until then proves nothing: the API server may not answer.
const LASTING_WATCH: Duration = Duration::from_secs(10);

/// Number of watches in a row that fail before the pods are listed again.
const FAILED_WATCHES_BEFORE_LIST: u32 = 3;

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
    /// The API server did not end the watch.
    #[error("the watch did not end at the requested time")]
    NotEnded,
    /// The watch failed after its begin.
    #[error("the watch failed with status {0}: {1}")]
    Watch(u16, String),
}

/// End of a watch that did not fail.
enum WatchEnd {
    /// The API server has ended it after the requested time.
    Regular,
    /// The version is too old for a watch.
    Expired,
}

/// The failures since the last success, from which the next request follows.
#[derive(Debug, PartialEq, Eq)]
struct Retries {
    /// Delay before the next request, without its random part.
    delay: Duration,
    /// Number of watches in a row that have failed soon.
    failed_watches: u32,
    /// Whether the pods must be listed before the next watch.
    must_list: bool,
    /// Whether the API server has not the last known version, so that a list must not name it.
    is_version_gone: bool,
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
    /// Reason why the watch fails again and again.
    problem: Option<String>,
}

impl Retries {
    /// Returns the state before the first list.
    fn new() -> Self {
        Self { delay: MIN_RETRY_DELAY, failed_watches: 0, must_list: true, is_version_gone: false }
    }

    /// Records a list. It proves that the API server responds, but not that watches do.
    fn on_list(&mut self) {
        (self.must_list, self.is_version_gone) = (false, false);
        if self.failed_watches == 0 {
            self.delay = MIN_RETRY_DELAY;
        }
    }

    /// Records a watch that lasted for some time after it was accepted, whatever its end.
    fn on_watch_lasted(&mut self, time: Duration) {
        if time >= LASTING_WATCH {
            (self.delay, self.failed_watches) = (MIN_RETRY_DELAY, 0);
        }
    }

    /// Records that a watch has failed. The next one begins with the last known version.
    fn on_watch_failed(&mut self) {
        self.failed_watches += 1;
        self.must_list = self.failed_watches.is_multiple_of(FAILED_WATCHES_BEFORE_LIST);
    }

    /// Records that the API server has not the last known version.
    fn on_version_gone(&mut self) {
        (self.must_list, self.is_version_gone) = (true, true);
    }

    /// Returns the delay before the next request, and doubles the following one.
    fn take_delay(&mut self) -> Duration {
        let delay = self.delay;
        self.delay = (2 * delay).min(MAX_RETRY_DELAY);
        delay + delay.mul_f64(0.5 * fastrand::f64())
    }
}

impl ApiPodSource {
    /// Lists and watches the pods of the node until the receiver of the updates is dropped.
    pub(super) async fn run(self, redact: bool, updates: mpsc::Sender<SourceUpdate>) {
        let (pods, url, problem) = (ApiPods::new(redact), None, None);
        let mut watch = PodWatch { source: self, pods, updates, url, has_listed: false, problem };
        let mut retries = Retries::new();
        while !watch.updates.is_closed() {
            if retries.must_list {
                match watch.list(retries.is_version_gone).await {
                    Ok(()) => retries.on_list(),
                    Err(error) => {
                        if error.is_version_gone() {
                            retries.on_version_gone();
                        }
                        watch.send(Some(error.to_string()), false).await;
                        sleep(retries.take_delay()).await;
                        continue;
                    }
                }
            }
            let (end, lasted) = watch.watch().await;
            retries.on_watch_lasted(lasted);
            match end {
                // A server that ends each watch at once is not queried all the time.
                Ok(WatchEnd::Regular) if lasted >= MIN_RETRY_DELAY => continue,
                Ok(WatchEnd::Regular) => {}
                Ok(WatchEnd::Expired) => retries.on_version_gone(),
                Err(error) => {
                    retries.on_watch_failed();
                    // A proxy in between ends connections that are idle, which is no problem.
                    if retries.failed_watches > 1 {
                        watch.problem = Some(error.to_string());
                        watch.send(watch.problem.clone(), false).await;
                    }
                }
            }
            sleep(retries.take_delay()).await;
        }
    }
}

impl ApiSourceError {
    /// Returns whether a list failed because of the version in its path.
    fn is_version_gone(&self) -> bool {
        matches!(self, Self::Request(ApiServerError::Refused { status, .. })
            if *status == GONE || *status == StatusCode::GATEWAY_TIMEOUT)
    }
}

impl PodWatch {
    /// Lists the pods: as they are at least at the last known version, unless it is gone.
    async fn list(&mut self, is_version_gone: bool) -> Result<(), ApiSourceError> {
        let (server, node) = self.server()?;
        let version = (!is_version_gone).then(|| self.pods.resource_version().unwrap_or("0"));
        let path = list_path(&node, version);
        let list = timeout(REQUEST_TIMEOUT, server.get(&path, MAX_LIST_BYTES)).await;
        let list = list.map_err(|_| ApiSourceError::TimedOut)??;
        self.pods.set_list(&list)?;
        drop(list);
        self.has_listed = true;
        self.send(self.problem.clone(), true).await;
        Ok(())
    }

    /// Watches the pods from the last known version on. Returns the time from the head of the
    /// response to the end as well, which is zero without a head.
    async fn watch(&mut self) -> (Result<WatchEnd, ApiSourceError>, Duration) {
        let seconds = MIN_WATCH_SECONDS + fastrand::u64(0..MIN_WATCH_SECONDS);
        let lines = match self.open_watch(seconds).await {
            Ok(Some(lines)) => lines,
            Ok(None) => return (Ok(WatchEnd::Expired), Duration::ZERO),
            Err(error) => return (Err(error), Duration::ZERO),
        };
        let accepted = Instant::now();
        let end = self.follow(lines, accepted, Duration::from_secs(seconds)).await;
        (end, accepted.elapsed())
    }

    /// Requests a watch of some seconds. Returns its lines once the head of the response has
    /// arrived; `None` if the version is too old.
    async fn open_watch(&mut self, seconds: u64) -> Result<Option<Lines>, ApiSourceError> {
        let (server, node) = self.server()?;
        let lines = timeout(REQUEST_TIMEOUT, server.lines(&self.pods.watch_path(&node, seconds))).await;
        match lines.map_err(|_| ApiSourceError::TimedOut)? {
            Err(ApiServerError::Refused { status, .. }) if status == GONE => Ok(None),
            lines => Ok(Some(lines?)),
        }
    }

    /// Applies the events of a watch that was accepted at `accepted` until it ends.
    async fn follow(
        &mut self,
        mut lines: Lines,
        accepted: Instant,
        length: Duration,
    ) -> Result<WatchEnd, ApiSourceError> {
        let deadline = accepted + length + WATCH_GRACE;
        loop {
            let until = if self.problem.is_some() { accepted + LASTING_WATCH } else { deadline };
            let line = match timeout_at(until, lines.next()).await {
                Ok(line) => line?,
                Err(_) if Instant::now() >= deadline => return Err(ApiSourceError::NotEnded),
                Err(_) => {
                    self.problem = None;
                    self.send(None, false).await;
                    continue;
                }
            };
            let Some(line) = line else { return Ok(WatchEnd::Regular) };
            if line.is_empty() {
                continue;
            }
            match self.pods.apply(&line)? {
                WatchEffect::Unchanged => {}
                WatchEffect::Changed => self.send(self.problem.clone(), true).await,
                WatchEffect::Failed(GONE, _) => return Ok(WatchEnd::Expired),
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
        let mut problem = problem.map(|problem| problem.replace('\n', "; "));
        let place = self.url.clone().unwrap_or_else(|| {
            let kubeconfig = self.source.kubeconfig.display();
            // The place has the path, so that the problem need not repeat it.
            problem = problem.take().map(|problem| problem.replace(&format!("{kubeconfig}: "), ""));
            format!("of {kubeconfig}")
        });
        let state = SourceState { source: Source::ApiServer, place, pods: manifests.iter().count(), problem };
        let problems = self.pods.problems();
        let pods = Some(manifests).filter(|_| has_changed && self.has_listed);
        // The receiver may be gone.
        let _ = self.updates.send(SourceUpdate::Pods { state, pods, problems }).await;
    }
}

#[cfg(test)]
mod tests;
