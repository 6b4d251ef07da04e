//! Updates of probe specs from their sources.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::shared::Shared;
use crate::config::OperatingMode;
use crate::events::EventRecorder;
use crate::probe::{NameSources, RefreshTrigger, SpecResolver, SpecSources, WatchedSpecs};
use crate::socket::SocketPath;

/// Capacity of the queue of spec updates.
const UPDATE_QUEUE: usize = 4_096;

/// Updates of probe specs.
pub(super) struct SpecUpdates {
    /// Sends the specs of manifests, if the built-in kubelet runs manifests.
    pub(super) sender: Option<mpsc::Sender<SpecResolver>>,
    pub(super) receiver: mpsc::Receiver<SpecResolver>,
    /// Triggers an immediate refresh of the other sources.
    pub(super) refresh: RefreshTrigger,
    /// The sources, as users see them.
    pub(super) names: watch::Receiver<Arc<NameSources>>,
}

impl SpecUpdates {
    /// Watches the sources of specs, unless the built-in kubelet sends its own. `listen` is the
    /// socket of clients.
    pub(super) fn start(
        mut sources: SpecSources,
        listen: &str,
        shared: &Shared,
        events: &Arc<EventRecorder>,
    ) -> Self {
        // A socket that systemd passes is not in the configuration.
        if let (Some(search), Ok(listen)) = (&mut sources.search, SocketPath::parse(listen)) {
            search.sockets.push(listen);
        }
        match shared.operating_mode {
            OperatingMode::Kubelet => {
                let (sender, receiver) = mpsc::channel(UPDATE_QUEUE);
                let names = watch::channel(Arc::default()).1;
                Self { sender: Some(sender), receiver, refresh: RefreshTrigger::default(), names }
            }
            OperatingMode::Restart | OperatingMode::Observe => {
                let WatchedSpecs { updates, refresh, names } =
                    sources.watch(shared.specs.clone(), events.clone());
                Self { sender: None, receiver: updates, refresh, names }
            }
        }
    }
}
