//! Settings and dependencies of the built-in kubelet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::client_pods::ClientPodStore;
use super::logs::LogRotatePolicy;
use crate::cri::MeteredChannel;
use crate::events::EventRecorder;
use crate::handler::Executor;
use crate::probe::SpecResolver;
use crate::prober::ProbeManager;
use crate::socket::SocketPath;
use crate::tap::InternalCalls;

/// Dependencies of the built-in kubelet.
#[derive(Debug)]
pub(crate) struct KubeletDeps {
    /// Connection to the runtime, for calls that change nothing.
    pub(crate) runtime: MeteredChannel,
    /// Executes hooks and stops containers.
    pub(crate) executor: Executor,
    /// Orders internal calls among the calls of clients.
    pub(crate) internal_calls: InternalCalls,
    /// The prober; `None` if no probes are run.
    pub(crate) prober: Option<ProbeManager>,
    /// Records events.
    pub(crate) events: Arc<EventRecorder>,
    /// Receives the probe specs of the manifests when they change; `None` if the pods come from
    /// clients.
    pub(crate) spec_updates: Option<mpsc::Sender<SpecResolver>>,
    /// Client pods, and the state store.
    pub(crate) store: ClientPodStore,
}

/// Settings of the built-in kubelet.
#[derive(Debug)]
pub(crate) struct KubeletConfig {
    /// Socket of the relay, for calls that change the runtime's state.
    pub(crate) relay_socket: SocketPath,
    pub(crate) dirs: PodDirs,
    /// Files and directories of the manifests.
    pub(crate) paths: BTreeSet<PathBuf>,
    /// Whether pods of an earlier run that no manifest has any more are removed.
    pub(crate) prune: bool,
}

/// Directories of pods on this host.
#[derive(Clone, Debug)]
pub(crate) struct PodDirs {
    pub(crate) logs: PathBuf,
    /// Whether logs are kept when their pod is removed.
    pub(crate) keep_logs: bool,
    /// Limits of the logs of containers.
    pub(crate) log_rotation: LogRotatePolicy,
    /// Directory of volumes and other files of the pods.
    pub(crate) pods: PathBuf,
}
