//! The client pods of a state directory.

use std::path::Path;

use tracing::{debug, warn};

use super::ClientPods;
use crate::lockfile::LockError;
use crate::state::{Snapshot, StateError, StateStore};

/// Message if the state directory is locked or cannot be opened.
const STOPS_NOT_RECORDED: &str = "stops by clients are not recorded for --enforce restart";

/// Client pods, and the state store that keeps them when probeshim ends.
#[derive(Debug)]
pub(crate) struct ClientPodStore {
    pub(crate) client_pods: ClientPods,
    pub(crate) state: StateStore,
    /// Content of the store when it was opened.
    pub(crate) snapshot: Snapshot,
}

impl ClientPodStore {
    /// Opens the state of a directory. Creates it if it is missing.
    pub(crate) fn open(dir: &Path) -> Result<Self, StateError> {
        let (state, snapshot) = StateStore::open(dir)?;
        let client_pods = ClientPods::new(&snapshot, state.clone())?;
        Ok(Self { client_pods, state, snapshot })
    }

    /// Opens the state of a directory if it has client pods and no other process uses it. The
    /// built-in kubelet that restarts them next must know which containers clients have stopped
    /// meanwhile.
    pub(crate) fn open_if_used(dir: &Path) -> Option<Self> {
        if !StateStore::exists(dir) {
            return None;
        }
        match Self::open(dir) {
            Ok(store) => Some(store).filter(|store| !store.client_pods.snapshot().keys().is_empty()),
            Err(error) => {
                if matches!(error, StateError::Locked(LockError::Held { .. })) {
                    // The probeshim that holds the directory records them.
                    debug!(%error, "{STOPS_NOT_RECORDED}");
                } else {
                    warn!(%error, "{STOPS_NOT_RECORDED}");
                }
                None
            }
        }
    }
}
