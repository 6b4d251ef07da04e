//! Pods that are being played, in the same process as the shim through which that is done.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use super::server::KubeletDeps;
use super::signals::ShutdownSignals;
use crate::play::{EventSink, Kubelet, KubeletConfig, LogRotatePolicy, ManifestSource, PodEvent};
use crate::probe::{SpecResolver, SpecUpdate};
use crate::record::{Event, EventHistory, EventType};
use crate::socket::SocketPath;
use crate::state::StateError;
use crate::terminal::{format, sanitize};

/// What the runtime gets to end and remove pods, beyond their grace periods.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Pods that are being played.
pub(super) struct RunningKubelet {
    pub(super) play: Kubelet,
    over: CancellationToken,
    /// Ends by itself only where a fault of ours ends it.
    pub(super) running: JoinHandle<bool>,
}

/// Where what belongs to pods lies on this host.
pub(super) struct Dirs {
    pub(super) logs: PathBuf,
    /// Whether logs stay when their pod goes.
    pub(super) keeps_logs: bool,
    /// Limits of the logs of containers.
    pub(super) log_rotation: LogRotatePolicy,
    pub(super) pods: PathBuf,
}

/// Keeps what happens to pods among the events, and tells others of what is specified.
#[derive(Debug)]
struct KubeletEventSink {
    events: Arc<EventHistory>,
    news: Option<mpsc::Sender<SpecUpdate>>,
}

impl KubeletDeps {
    /// Plays what documents say on the shim that listens there; others find it from now on.
    pub(super) fn play(
        self,
        listen: SocketPath,
        dirs: Dirs,
        prunes: bool,
        documents: ManifestSource,
    ) -> Result<RunningKubelet, StateError> {
        let play = self.start(listen, dirs, documents.paths().clone(), prunes)?;
        let over = CancellationToken::new();
        let (worker, until) = (play.clone(), over.clone());
        let running = tokio::spawn(async move { worker.run(documents, until).await });
        Ok(RunningKubelet { play, over, running })
    }

    /// Keeps alive what clients make through the shim that listens there; others find it from now on. It ends when what is returned is dropped.
    pub(super) fn keep(self, listen: SocketPath) -> Result<DropGuard, StateError> {
        let (dir, kept) = (self.kept.state.0.dir(), self.kept.client_pods.pods());
        let (logs, pods) = (dir.join("pod-logs"), dir.join("pods"));
        // The logs of clients' containers are theirs, and are not rotated.
        let log_rotation = LogRotatePolicy::default();
        let dirs = Dirs { logs, keeps_logs: true, log_rotation, pods };
        let play = self.start(listen, dirs, BTreeSet::new(), false)?;
        let over = CancellationToken::new();
        let until = over.clone();
        tokio::spawn(async move { play.run_client_pods(kept, until).await });
        Ok(over.drop_guard())
    }

    /// What a kubelet would do is done through the shim that listens there, for what these files say and for what was kept.
    fn start(
        self,
        listen: SocketPath,
        dirs: Dirs,
        paths: BTreeSet<PathBuf>,
        prune: bool,
    ) -> Result<Kubelet, StateError> {
        let Self { own: asks, executor, watched, prober, events, news, kept, play: known } = self;
        let Dirs { logs, keeps_logs: keep_logs, log_rotation, pods } = dirs;
        let play = Kubelet::new(KubeletConfig {
            acts: listen,
            asks,
            executor,
            watched,
            prober,
            logs,
            keep_logs,
            log_rotation,
            pods,
            client_pods: kept.client_pods,
            state: kept.state,
            paths,
            prune,
            event_sink: Arc::new(KubeletEventSink { events, news }),
        })?;
        let _ = known.set(play.clone());
        Ok(play)
    }
}

impl RunningKubelet {
    /// Ends all pods, and removes them; at once where a signal comes meanwhile, or it takes longer than it may. Tells whether all of them are
    /// gone.
    pub(super) async fn end(mut self, signals: &mut ShutdownSignals) -> bool {
        let limit = self.play.longest_grace_period() + TERMINATION_TIMEOUT;
        let late = sleep(limit);
        tokio::pin!(late);
        let mut is_late = false;
        self.over.cancel();
        loop {
            tokio::select! {
                ended = &mut self.running => return ended.unwrap_or(false),
                name = signals.next() => {
                    warn!(signal = name, "told again: the pods are removed at once");
                    self.play.force_terminate();
                }
                () = &mut late, if !is_late => {
                    is_late = true;
                    warn!("the pods have not ended within {}: they are removed at once", format::duration(limit));
                    self.play.force_terminate();
                }
            }
        }
    }
}

impl KubeletEventSink {
    fn tell(&self, news: SpecUpdate) {
        if let Some(updates) = &self.news {
            // There is always room: a look at files comes every two seconds at most.
            let _ = updates.try_send(news);
        }
    }
}

impl EventSink for KubeletEventSink {
    fn notice(&self, notice: PodEvent) {
        self.events.push(Event::from_pod_event(notice));
    }

    fn specs_changed(&self, specs: SpecResolver) {
        self.tell(SpecUpdate::Specs(specs));
    }

    fn problem(&self, problem: String) {
        self.tell(SpecUpdate::Problem(problem));
    }

    fn problem_resolved(&self, problem: String) {
        self.tell(SpecUpdate::Resolved(problem));
    }

    fn state_error(&self, reason: Option<String>) {
        let event = Event::state_write(reason);
        match event.severity {
            EventType::Warning => warn!("{}", sanitize(&event.message)),
            EventType::Normal => info!("{}", event.message),
        }
        self.events.push(event);
    }

    fn mounts_unreachable(&self, reason: String) {
        let event = Event::unreachable_mounts(&reason);
        warn!("{}", sanitize(&event.message));
        self.events.push(event);
    }

    fn paused(&self) {
        let event = Event::paused_for_kubelet();
        warn!("{}", event.message);
        self.events.push(event);
    }
}
