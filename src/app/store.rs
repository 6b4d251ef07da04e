//! Opens the store of client pods, which a predecessor may still have.

use std::time::Duration;

use tokio::time::sleep;
use tracing::info;

use super::error::RunError;
use super::handover::predecessor_runs;
use super::service_manager::start_watchdog;
use crate::config::{OperatingMode, ServerConfig};
use crate::kubelet::ClientPodStore;
use crate::lockfile::LockError;
use crate::state::StateError;

/// Interval between attempts to open a store that a predecessor has locked.
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Opens the store of client pods in the state directory, if there is one. The mode `Observe` opens
/// only a store that has been used. A successor waits until its predecessor has closed the store,
/// at the end of its drain. Meanwhile it answers the watchdog of systemd.
pub(super) async fn open_store(config: &ServerConfig) -> Result<Option<ClientPodStore>, RunError> {
    let Some(dir) = &config.state else { return Ok(None) };
    if config.operating_mode == OperatingMode::Observe {
        return Ok(ClientPodStore::open_if_used(dir));
    }
    let mut watchdog = None;
    loop {
        let waits = predecessor_runs();
        match ClientPodStore::open(dir) {
            Err(StateError::Locked(LockError::Held { .. })) if waits => {
                if watchdog.is_none() {
                    info!("waiting for the end of the predecessor, which has the state");
                    watchdog = Some(start_watchdog(Vec::new()));
                }
                sleep(STORE_RETRY_INTERVAL).await;
            }
            store => return store.map(Some).map_err(|error| RunError::State(error, config.state_source)),
        }
    }
}
