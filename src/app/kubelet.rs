//! Pods that are being played, in the same process as the shim through which that is done.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::server::KubeletDeps;
use super::signals::ShutdownSignals;
use crate::kubelet::{Kubelet, KubeletConfig, LogRotatePolicy, ManifestSource};
use crate::socket::SocketPath;
use crate::state::StateError;
use crate::terminal::format;

/// The time to stop and remove pods, in addition to their grace periods.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Pods that are being played.
pub(super) struct RunningKubelet {
    pub(super) kubelet: Kubelet,
    stop: CancellationToken,
    /// Ends by itself only where a fault of ours ends it.
    pub(super) task: JoinHandle<bool>,
}

/// Where what belongs to pods lies on this host.
pub(super) struct Dirs {
    pub(super) logs: PathBuf,
    /// Whether logs stay when their pod goes.
    pub(super) keep_logs: bool,
    /// Limits of the logs of containers.
    pub(super) log_rotation: LogRotatePolicy,
    pub(super) pods: PathBuf,
}

impl KubeletDeps {
    /// Starts the kubelet for the pods of manifests, with the relay's socket as its runtime.
    pub(super) fn start_for_manifests(
        self,
        listen: SocketPath,
        dirs: Dirs,
        prune: bool,
        documents: ManifestSource,
    ) -> Result<RunningKubelet, StateError> {
        let events = self.events.clone();
        let kubelet = self.start(listen, dirs, documents.paths().clone(), prune)?;
        let stop = CancellationToken::new();
        let (kubelet_handle, until) = (kubelet.clone(), stop.clone());
        let source = documents.watch(events);
        let task = tokio::spawn(async move { kubelet_handle.run(source, until).await });
        Ok(RunningKubelet { kubelet, stop, task })
    }

    /// Starts the kubelet for client pods, with the relay's socket as its runtime. It ends when the returned guard is dropped.
    pub(super) fn start_for_client_pods(self, listen: SocketPath) -> Result<DropGuard, StateError> {
        let (dir, source) = (self.store.state.dir(), self.store.client_pods.source());
        let (logs, pods) = (dir.join("pod-logs"), dir.join("pods"));
        // The logs of clients' containers are theirs, and are not rotated.
        let log_rotation = LogRotatePolicy::default();
        let dirs = Dirs { logs, keep_logs: true, log_rotation, pods };
        let kubelet = self.start(listen, dirs, BTreeSet::new(), false)?;
        let stop = CancellationToken::new();
        let until = stop.clone();
        tokio::spawn(async move { kubelet.run(source, until).await });
        Ok(stop.drop_guard())
    }

    /// Creates the kubelet and publishes it to its users.
    fn start(
        self,
        listen: SocketPath,
        dirs: Dirs,
        paths: BTreeSet<PathBuf>,
        prune: bool,
    ) -> Result<Kubelet, StateError> {
        let Self { runtime, executor, internal_calls, prober, events, spec_updates, store, kubelet: slot } =
            self;
        let Dirs { logs, keep_logs, log_rotation, pods } = dirs;
        let kubelet = Kubelet::new(KubeletConfig {
            relay_socket: listen,
            runtime,
            executor,
            internal_calls,
            prober,
            logs,
            keep_logs,
            log_rotation,
            pods,
            client_pods: store.client_pods,
            state: store.state,
            snapshot: store.snapshot,
            paths,
            prune,
            events,
            spec_updates,
        })?;
        let _ = slot.set(kubelet.clone());
        Ok(kubelet)
    }
}

impl RunningKubelet {
    /// Ends all pods, and removes them; at once where a signal comes meanwhile, or it takes longer than it may. Tells whether all of them are
    /// gone.
    pub(super) async fn end(mut self, signals: &mut ShutdownSignals) -> bool {
        let limit = self.kubelet.max_grace_period() + TERMINATION_TIMEOUT;
        let deadline = sleep(limit);
        tokio::pin!(deadline);
        let mut deadline_passed = false;
        self.stop.cancel();
        loop {
            tokio::select! {
                ended = &mut self.task => return ended.unwrap_or(false),
                name = signals.next() => {
                    warn!(signal = name, "told again: the pods are removed at once");
                    self.kubelet.force_terminate();
                }
                () = &mut deadline, if !deadline_passed => {
                    deadline_passed = true;
                    warn!("the pods have not ended within {}: they are removed at once", format::duration(limit));
                    self.kubelet.force_terminate();
                }
            }
        }
    }
}
