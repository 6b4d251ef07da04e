//! Watches all sources of specifications for changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use super::api_source::ApiPodSource;
use super::found_source::KubeletSearch;
use super::name_sources::{NameSources, SourceState};
use super::resolver::SpecResolver;
use super::source_update::{FoundPods, SourceUpdate};
use crate::events::{Event, EventRecorder, reason};
use crate::manifest::{Files, KubeletClient, Source};
use crate::terminal::sanitize;

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
    /// Source of all pods of the node that the configuration names, if there is one.
    pub kubelet: Option<KubeletSource>,
    /// Search for a kubelet whose pods name calls; `None` if there is none.
    pub search: Option<KubeletSearch>,
    /// Configuration file to which a source can be added.
    pub config_file: Option<PathBuf>,
    /// Whether commands are omitted from problems.
    pub redacts: bool,
}

/// Source of all pods of the node that the configuration names.
#[derive(Clone, Debug)]
pub enum KubeletSource {
    /// A kubelet whose pods are requested.
    Pods(KubeletClient),
    /// An API server whose pods are listed and watched.
    ApiServer(ApiPodSource),
}

/// The specifications of sources that are watched.
#[derive(Debug)]
pub struct WatchedSpecs {
    /// Changed specifications.
    pub updates: mpsc::Receiver<SpecResolver>,
    /// Requests a look at the sources.
    pub refresh: RefreshTrigger,
    /// The sources, as users see them.
    pub names: watch::Receiver<Arc<NameSources>>,
}

/// The current specifications, and the sources of the names in them.
#[derive(Clone, Debug)]
pub struct NameView {
    /// The specifications.
    pub specs: watch::Receiver<SpecResolver>,
    /// The sources, as users see them.
    pub sources: watch::Receiver<Arc<NameSources>>,
}

/// Requests a look at the sources before the next interval, because there is a new pod. Clones
/// trigger the same watch.
#[derive(Clone, Debug, Default)]
pub struct RefreshTrigger(Arc<watch::Sender<()>>);

impl RefreshTrigger {
    /// Requests a look at the sources soon.
    pub fn trigger(&self) {
        self.0.send_replace(());
    }
}

impl SpecSources {
    /// Watches the sources until the receiver of the specifications is dropped. Problems are
    /// recorded as events.
    #[must_use]
    pub fn watch(self, specs: SpecResolver, events: Arc<EventRecorder>) -> WatchedSpecs {
        let (update_sender, updates) = mpsc::channel(UPDATE_QUEUE_CAPACITY);
        let refresh = RefreshTrigger::default();
        let config_file = self.config_file.clone();
        let (name_sender, names) =
            watch::channel(Arc::new(NameSources { config_file, ..NameSources::default() }));
        let triggered = refresh.clone();
        tokio::spawn(async move {
            let closed = update_sender.clone();
            tokio::select! {
                () = self.run(specs, update_sender, name_sender, &events, triggered) => {}
                () = closed.closed() => {}
            }
        });
        WatchedSpecs { updates, refresh, names }
    }

    async fn run(
        self,
        specs: SpecResolver,
        update_sender: mpsc::Sender<SpecResolver>,
        names: watch::Sender<Arc<NameSources>>,
        events: &EventRecorder,
        refresh: RefreshTrigger,
    ) {
        let Self { mut files, kubelet, search, redacts, .. } = self;
        let (source_sender, mut source_updates) = mpsc::channel(UPDATE_QUEUE_CAPACITY);
        if let Some(search) = search {
            tokio::spawn(search.run(redacts, refresh.0.subscribe(), source_sender.clone()));
        }
        match kubelet {
            Some(KubeletSource::ApiServer(source)) => drop(tokio::spawn(source.run(redacts, source_sender))),
            Some(KubeletSource::Pods(client)) => {
                tokio::spawn(request_pods(client, redacts, refresh.0.subscribe(), source_sender));
            }
            None => drop(source_sender),
        }
        let mut state = WatchState {
            specs,
            update_sender,
            names,
            problems: BTreeMap::new(),
            unavailable: BTreeMap::new(),
        };
        let mut next_rescan = Instant::now() + MIN_RESCAN_INTERVAL;
        state.on_files(&files, events);
        loop {
            tokio::select! {
                () = sleep_until(next_rescan), if !files.is_empty() => {
                    let started = Instant::now();
                    let has_changed;
                    (files, has_changed) = rescan_blocking(files).await;
                    state.on_files(&files, events);
                    if has_changed {
                        state.specs = state.specs.clone().with_manifests(files.manifests());
                        state.publish().await;
                    }
                    next_rescan = Instant::now() + MIN_RESCAN_INTERVAL.max(RESCAN_BACKOFF_FACTOR * started.elapsed());
                }
                Some(update) = source_updates.recv() => state.on_update(update, events).await,
                else => return,
            }
        }
    }
}

/// Requests the pods of a kubelet at its interval, and when there is a new pod, until the receiver
/// of the updates is dropped.
async fn request_pods(
    client: KubeletClient,
    redact: bool,
    mut triggers: watch::Receiver<()>,
    updates: mpsc::Sender<SourceUpdate>,
) {
    let (mut known, mut last_problems) = (0, Vec::new());
    while !updates.is_closed() {
        let (pods, problem, problems) = match client.pods(Source::Kubelet, redact).await {
            Ok((pods, problems)) => (Some(pods), None, problems),
            // The pods of the last response stay in use, with the errors in them.
            Err(error) => (None, Some(error.to_string()), last_problems.clone()),
        };
        last_problems.clone_from(&problems);
        known = pods.as_ref().map_or(known, |pods| pods.iter().count());
        let state = SourceState { source: Source::Kubelet, place: client.place(), pods: known, problem };
        if updates.send(SourceUpdate::Pods { state, pods, problems }).await.is_err() {
            return;
        }
        let ended = Instant::now();
        tokio::select! {
            () = sleep_until(ended + client.interval) => {}
            () = async {
                let _ = triggers.changed().await;
                sleep_until(ended + KUBELET_REFRESH_INTERVAL).await;
            } => {}
        }
    }
}

/// The specifications and the state of all sources.
struct WatchState {
    specs: SpecResolver,
    update_sender: mpsc::Sender<SpecResolver>,
    names: watch::Sender<Arc<NameSources>>,
    /// Invalid specifications by source.
    problems: BTreeMap<Source, ProblemTracker>,
    /// Reasons why sources are not available.
    unavailable: BTreeMap<Source, ProblemTracker>,
}

impl WatchState {
    async fn publish(&self) {
        let _ = self.update_sender.send(self.specs.clone()).await;
    }

    fn on_files(&mut self, files: &Files, events: &EventRecorder) {
        let problems = files.problems();
        if !files.is_empty() {
            let problem = problems.first().cloned();
            let pods = files.manifests().iter().count();
            let place = files.paths().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            self.set_states(vec![(
                Source::Manifest,
                Some(SourceState { source: Source::Manifest, place, pods, problem }),
            )]);
        }
        self.problems.entry(Source::Manifest).or_default().report(problems.into_iter().collect(), events);
    }

    async fn on_update(&mut self, update: SourceUpdate, events: &EventRecorder) {
        match update {
            SourceUpdate::Pods { state, pods, problems } => {
                let with_source = |problem| format!("{}: {problem}", state.describe());
                let source = state.source;
                let unavailable = state.problem.clone().map(with_source).into_iter().collect();
                let tracker = self.unavailable.entry(source).or_default();
                tracker.report_as(reason::SPEC_SOURCE_UNAVAILABLE, unavailable, events);
                let problems = problems.into_iter().map(with_source).collect();
                self.problems.entry(source).or_default().report(problems, events);
                self.set_states(vec![(source, Some(state))]);
                if pods.is_some_and(|pods| self.specs.set_pods(source, pods)) {
                    self.publish().await;
                }
            }
            SourceUpdate::Found { found, node } => {
                let mut has_changed = false;
                let mut states = Vec::new();
                for FoundPods { source, state, pods } in found {
                    has_changed |= pods.is_some_and(|pods| self.specs.set_pods(source, pods));
                    states.push((source, state));
                }
                self.set_states(states);
                self.names.send_if_modified(|names| {
                    if names.node == node {
                        return false;
                    }
                    *names = Arc::new(NameSources { node, ..(**names).clone() });
                    true
                });
                if has_changed {
                    self.publish().await;
                }
            }
        }
    }

    /// Replaces the states of sources, and logs those that were found and have changed. `None` if a
    /// source does not exist.
    fn set_states(&self, states: Vec<(Source, Option<SourceState>)>) {
        self.names.send_if_modified(|names| {
            let mut all = names.sources.clone();
            for (source, state) in states {
                all.retain(|known| known.source != source);
                all.extend(state);
            }
            all.sort_by_key(|state| state.source);
            if all == names.sources {
                return false;
            }
            let is_new = |state: &&SourceState| !names.sources.iter().any(|it| it.is_same_but_pods(state));
            // Problems of the other sources are events.
            let is_logged = |state: &&SourceState| state.problem.is_none() || state.source.is_found();
            for state in all.iter().filter(is_new).filter(is_logged) {
                let problem = state.problem.as_deref().map(sanitize);
                info!(problem, "names of probes: {}", sanitize(&state.describe()));
            }
            *names = Arc::new(NameSources { sources: all, ..(**names).clone() });
            true
        });
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

    /// Records and logs the invalid specifications that are new, and those that are resolved.
    pub(crate) fn report(&mut self, now: BTreeSet<String>, events: &EventRecorder) {
        self.report_as(reason::INVALID_SPEC, now, events);
    }

    /// Records and logs the problems that are new, as warnings with a reason, and those that are
    /// resolved.
    fn report_as(&mut self, reason: &'static str, now: BTreeSet<String>, events: &EventRecorder) {
        let [new, resolved] = self.take(now);
        for problem in new {
            events.log_and_record(Event::warning(reason, problem));
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
