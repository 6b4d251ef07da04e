//! Watches manifests and the kubelet's pods for changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::resolver::SpecResolver;
use crate::events::{Event, EventRecorder, reason};
use crate::manifest::{Files, KubeletClient};

/// Minimum interval between two scans of the files.
const MIN_RESCAN_INTERVAL: Duration = Duration::from_secs(2);

/// Minimum interval between two scans, as a multiple of the duration of the last scan.
const RESCAN_BACKOFF_FACTOR: u32 = 50;

/// Minimum interval between two requests to a kubelet, if there is a new pod.
const KUBELET_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Capacity of the queue of updates.
const UPDATE_QUEUE_CAPACITY: usize = 64;

/// Sources of specifications that may change.
#[derive(Clone, Debug, Default)]
pub struct SpecSources {
    /// Files and directories of manifests.
    pub files: Files,
    /// Kubelet whose pods are requested, if there is one.
    pub kubelet: Option<KubeletClient>,
    /// Whether commands are omitted from problems.
    pub redacts: bool,
}

/// Requests the kubelet's pods before the next interval, because there is a new pod. Clones trigger
/// the same watch.
#[derive(Clone, Debug, Default)]
pub struct RefreshTrigger(Arc<Notify>);

impl RefreshTrigger {
    /// Requests the kubelet's pods soon.
    pub fn trigger(&self) {
        self.0.notify_one();
    }
}

impl SpecSources {
    /// Watches the sources until the receiver of the specifications is dropped. Problems are
    /// recorded as events.
    #[must_use]
    pub fn watch(
        self,
        specs: SpecResolver,
        events: Arc<EventRecorder>,
    ) -> (mpsc::Receiver<SpecResolver>, RefreshTrigger) {
        let (update_sender, updates) = mpsc::channel(UPDATE_QUEUE_CAPACITY);
        let (refresh, sources) = (RefreshTrigger::default(), self);
        let triggered = refresh.clone();
        tokio::spawn(async move {
            let closed = update_sender.clone();
            tokio::select! {
                () = sources.run(specs, update_sender, &events, triggered) => {}
                () = closed.closed() => {}
            }
        });
        (updates, refresh)
    }

    async fn run(
        self,
        mut specs: SpecResolver,
        update_sender: mpsc::Sender<SpecResolver>,
        events: &EventRecorder,
        refresh: RefreshTrigger,
    ) {
        let Self { mut files, kubelet, redacts } = self;
        let (mut file_problems, mut kubelet_problems) =
            (ProblemTracker::default(), ProblemTracker::default());
        file_problems.report(files.problems().into_iter().collect(), events);
        let (mut next_rescan, mut next_request) = (Instant::now() + MIN_RESCAN_INTERVAL, Instant::now());
        let mut last_request = next_request;
        loop {
            tokio::select! {
                () = sleep_until(next_rescan), if !files.is_empty() => {
                    let started = Instant::now();
                    let has_changed;
                    (files, has_changed) = rescan_blocking(files).await;
                    file_problems.report(files.problems().into_iter().collect(), events);
                    if has_changed {
                        specs = specs.with_manifests(files.manifests());
                        let _ = update_sender.send(specs.clone()).await;
                    }
                    next_rescan = Instant::now() + MIN_RESCAN_INTERVAL.max(RESCAN_BACKOFF_FACTOR * started.elapsed());
                }
                () = refresh.0.notified(), if kubelet.is_some() => next_request = next_request.min(last_request + KUBELET_REFRESH_INTERVAL),
                () = sleep_until(next_request), if kubelet.is_some() => {
                    let Some(kubelet) = &kubelet else { continue };
                    let problems = match kubelet.pods(redacts).await {
                        Ok((pods, problems)) => {
                            if specs.set_kubelet_pods(pods) {
                                let _ = update_sender.send(specs.clone()).await;
                            }
                            problems
                        }
                        Err(error) => vec![error.to_string()],
                    };
                    let with_source = |problem| format!("{}: {problem}", kubelet.name());
                    kubelet_problems.report(problems.into_iter().map(with_source).collect(), events);
                    last_request = Instant::now();
                    next_request = last_request + kubelet.interval;
                }
                else => return,
            }
        }
    }
}

/// Scans files on a thread that may block. Returns whether their content has changed.
pub(crate) async fn rescan_blocking(files: Files) -> (Files, bool) {
    let kept = files.clone();
    let looked = spawn_blocking(move || {
        let mut files = files;
        let has_changed = files.rescan();
        (files, has_changed)
    });
    looked.await.unwrap_or_else(|_| {
        error!("bug in probeshim: the scan of manifests panicked; please report it");
        (kept, false)
    })
}

/// Problems that have been reported and are not resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProblemTracker(BTreeSet<String>);

impl ProblemTracker {
    /// Replaces the known problems. Returns the new ones and the resolved ones.
    pub(crate) fn take(&mut self, now: BTreeSet<String>) -> [Vec<String>; 2] {
        let news = now.difference(&self.0).cloned().collect();
        let over = self.0.difference(&now).cloned().collect();
        self.0 = now;
        [news, over]
    }

    /// Records and logs the problems that are new, and those that are resolved.
    pub(crate) fn report(&mut self, now: BTreeSet<String>, events: &EventRecorder) {
        let [new, resolved] = self.take(now);
        for problem in new {
            record_problem(events, problem);
        }
        for problem in resolved {
            events.log_and_record(Event::normal(reason::SPEC_RESOLVED, format!("Resolved: {problem}")));
        }
    }
}

/// Records and logs an invalid specification. Its previous content continues to apply.
pub(crate) fn record_problem(events: &EventRecorder, problem: String) {
    events.log_and_record(Event::warning(reason::INVALID_SPEC, problem));
}
