//! Manifests and the kubelet's pods as they change while we run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::kubelet_client::KubeletClient;
use super::read::files::{Files, FromDocument};
use super::resolver::SpecResolver;

/// From one look at the files to the next, at least.
const MIN_RESCAN_INTERVAL: Duration = Duration::from_secs(2);

/// How much longer than a look takes it is waited for the next.
const RESCAN_BACKOFF_FACTOR: u32 = 50;

/// From one question to a kubelet to the next, where there is a new pod.
const KUBELET_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// News that may wait to be taken.
const UPDATE_QUEUE_CAPACITY: usize = 64;

/// What becomes of the sources of specs.
#[derive(Debug)]
pub enum SpecUpdate {
    /// These are the specs from now on.
    Specs(SpecResolver),
    /// Something is wrong with a source: what it said of that before goes on to count, if it did.
    Problem(String),
    /// What was wrong is so no longer.
    Resolved(String),
}

/// The sources of specs that may change.
#[derive(Clone, Debug, Default)]
pub struct SpecSources {
    /// Files and folders of manifests.
    pub files: Files,
    /// A kubelet, if one is asked.
    pub kubelet: Option<KubeletClient>,
    /// Whether commands are not shown in what is wrong.
    pub redacts: bool,
}

/// Tells the kubelet's source to look before its time, because there is somebody new. Copies tell the same.
#[derive(Clone, Debug, Default)]
pub struct RefreshTrigger(Arc<Notify>);

impl RefreshTrigger {
    /// There is somebody new.
    pub fn trigger(&self) {
        self.0.notify_one();
    }
}

impl SpecSources {
    /// Watches them for as long as somebody takes the news. What is wrong from the start is the first of it.
    #[must_use]
    pub fn watch(self, specs: SpecResolver) -> (mpsc::Receiver<SpecUpdate>, RefreshTrigger) {
        let (update_sender, updates) = mpsc::channel(UPDATE_QUEUE_CAPACITY);
        let (refresh, sources) = (RefreshTrigger::default(), self);
        let triggered = refresh.clone();
        tokio::spawn(async move {
            let closed = update_sender.clone();
            tokio::select! {
                () = sources.run(specs, update_sender, triggered) => {}
                () = closed.closed() => {}
            }
        });
        (updates, refresh)
    }

    async fn run(
        self,
        mut specs: SpecResolver,
        update_sender: mpsc::Sender<SpecUpdate>,
        refresh: RefreshTrigger,
    ) {
        let Self { mut files, kubelet, redacts } = self;
        let (mut file_problems, mut kubelet_problems) =
            (ProblemTracker::default(), ProblemTracker::default());
        file_problems.diff(files.problems(), &update_sender).await;
        let (mut next_rescan, mut next_request) = (Instant::now() + MIN_RESCAN_INTERVAL, Instant::now());
        let mut last_request = next_request;
        loop {
            tokio::select! {
                () = sleep_until(next_rescan), if !files.is_empty() => {
                    let started = Instant::now();
                    let has_changed;
                    (files, has_changed) = rescan_blocking(files).await;
                    file_problems.diff(files.problems(), &update_sender).await;
                    if has_changed {
                        specs = specs.with_manifests(files.manifests());
                        let _ = update_sender.send(SpecUpdate::Specs(specs.clone())).await;
                    }
                    next_rescan = Instant::now() + MIN_RESCAN_INTERVAL.max(RESCAN_BACKOFF_FACTOR * started.elapsed());
                }
                () = refresh.0.notified(), if kubelet.is_some() => next_request = next_request.min(last_request + KUBELET_REFRESH_INTERVAL),
                () = sleep_until(next_request), if kubelet.is_some() => {
                    let Some(kubelet) = &kubelet else { continue };
                    let problems = match kubelet.pods(redacts).await {
                        Ok((pods, problems)) => {
                            if specs.set_kubelet_pods(pods) {
                                let _ = update_sender.send(SpecUpdate::Specs(specs.clone())).await;
                            }
                            problems
                        }
                        Err(error) => vec![error.to_string()],
                    };
                    let with_source = |problem| format!("{}: {problem}", kubelet.name());
                    kubelet_problems.diff(problems.into_iter().map(with_source).collect(), &update_sender).await;
                    last_request = Instant::now();
                    next_request = last_request + kubelet.interval;
                }
                else => return,
            }
        }
    }
}

/// Looks at files on a thread that may wait. Tells whether they say something else now.
pub(crate) async fn rescan_blocking<T: FromDocument + Send + 'static>(files: Files<T>) -> (Files<T>, bool) {
    let kept = files.clone();
    let looked = spawn_blocking(move || {
        let mut files = files;
        let has_changed = files.rescan();
        (files, has_changed)
    });
    looked.await.unwrap_or_else(|_| {
        error!("a fault of probeshim's own: manifests were not looked at, please report it");
        (kept, false)
    })
}

/// What is known to be wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProblemTracker(BTreeSet<String>);

impl ProblemTracker {
    /// Takes what is wrong now. Returns what is new of it, and what is over.
    pub(crate) fn take(&mut self, now: BTreeSet<String>) -> [Vec<String>; 2] {
        let news = now.difference(&self.0).cloned().collect();
        let over = self.0.difference(&now).cloned().collect();
        self.0 = now;
        [news, over]
    }

    /// Tells what is new of what is wrong, and what is over.
    async fn diff(&mut self, now: BTreeSet<String>, update_sender: &mpsc::Sender<SpecUpdate>) {
        let [new, over] = self.take(now);
        let new = new.into_iter().map(SpecUpdate::Problem);
        for update in new.chain(over.into_iter().map(SpecUpdate::Resolved)) {
            let _ = update_sender.send(update).await;
        }
    }
}
