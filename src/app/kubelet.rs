//! Runs the built-in kubelet in the same process as the relay that it uses.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::signals::ShutdownSignals;
use crate::kubelet::{Kubelet, KubeletConfig, KubeletDeps, LogRotatePolicy, ManifestSource, PodDirs};
use crate::socket::SocketPath;
use crate::state::StateError;
use crate::terminal::format;

/// Time for the termination of pods, in addition to their grace periods.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(60);

/// The running built-in kubelet.
pub(super) struct RunningKubelet {
    pub(super) kubelet: Kubelet,
    stop: CancellationToken,
    /// Runs until `stop` is cancelled. It ends earlier only because of a bug.
    pub(super) task: JoinHandle<bool>,
}

/// Starts the built-in kubelet.
pub(super) struct KubeletStarter {
    pub(super) deps: KubeletDeps,
    /// Set once the kubelet runs, for its users.
    pub(super) kubelet: Arc<OnceLock<Kubelet>>,
}

impl KubeletStarter {
    /// Starts the kubelet for the pods of manifests. `relay_socket` is its runtime.
    pub(super) fn start_for_manifests(
        self,
        relay_socket: SocketPath,
        dirs: PodDirs,
        prune: bool,
        manifests: ManifestSource,
    ) -> Result<RunningKubelet, StateError> {
        let (paths, events) = (manifests.paths().clone(), self.deps.events.clone());
        let kubelet = self.start(KubeletConfig { relay_socket, dirs, paths, prune })?;
        let stop = CancellationToken::new();
        let (kubelet_handle, until) = (kubelet.clone(), stop.clone());
        let source = manifests.watch(events);
        let task = tokio::spawn(async move { kubelet_handle.run_manifests(source, until).await });
        Ok(RunningKubelet { kubelet, stop, task })
    }

    /// Starts the kubelet for client pods. `relay_socket` is its runtime. It ends when the returned
    /// guard is dropped.
    pub(super) fn start_for_client_pods(self, relay_socket: SocketPath) -> Result<DropGuard, StateError> {
        let store = &self.deps.store;
        let (dir, source) = (store.state.dir(), store.client_pods.source());
        let (logs, pods) = (dir.join("pod-logs"), dir.join("pods"));
        // Clients own the logs of their containers, which are not rotated.
        let dirs = PodDirs { logs, keep_logs: true, log_rotation: LogRotatePolicy::default(), pods };
        let config = KubeletConfig { relay_socket, dirs, paths: BTreeSet::new(), prune: false };
        let kubelet = self.start(config)?;
        let stop = CancellationToken::new();
        let until = stop.clone();
        tokio::spawn(async move { kubelet.run(source, until).await });
        Ok(stop.drop_guard())
    }

    /// Creates the kubelet and publishes it to its users.
    fn start(self, config: KubeletConfig) -> Result<Kubelet, StateError> {
        let kubelet = Kubelet::new(config, self.deps)?;
        let _ = self.kubelet.set(kubelet.clone());
        Ok(kubelet)
    }
}

impl RunningKubelet {
    /// Terminates and removes all pods. A signal, or the end of the time limit, forces the
    /// termination. Returns whether all pods are gone.
    pub(super) async fn end(mut self, signals: &mut ShutdownSignals) -> bool {
        let limit = self.kubelet.max_grace_period() + TERMINATION_TIMEOUT;
        let deadline = sleep(limit);
        tokio::pin!(deadline);
        let mut deadline_passed = false;
        self.stop.cancel();
        loop {
            tokio::select! {
                ended = &mut self.task => return ended.unwrap_or(false),
                signal = signals.next() => {
                    warn!(signal = signal.name(), "second signal: pods are removed immediately");
                    self.kubelet.force_terminate();
                }
                () = &mut deadline, if !deadline_passed => {
                    deadline_passed = true;
                    warn!("pods have not ended within {}: they are removed immediately", format::duration(limit));
                    self.kubelet.force_terminate();
                }
            }
        }
    }
}
