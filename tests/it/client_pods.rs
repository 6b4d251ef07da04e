//! `run --enforce restart` on procrun: containers that clients create through the relay are
//! restarted as by a kubelet, until a client releases them.

mod original_requests;
mod owner;
mod recreation;
mod release;
mod restarts;
mod unobserved;

use rustix::process::Signal;

use crate::procrun::Runtime;
use crate::program::{Place, Running};
pub(crate) use owner::{Owner, attempt, is_running};

/// Script that exits with an error after a moment.
pub(crate) const SHORT: &str = "sleep 0.3; exit 3";

pub(crate) async fn start(place: &Place) -> Running {
    place.start_watching(&["--enforce", "restart"]).await
}

/// Starts a runtime, probeshim with restarts, and a client.
async fn begin() -> (Runtime, Running, Owner) {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let running = start(&place).await;
    (runtime, running, Owner::of(place))
}

/// Kills probeshim, and starts it again with another client.
async fn kill_and_restart(mut running: Running, owner: Owner) -> (Running, Owner) {
    running.signal(Signal::KILL);
    running.ended().await;
    (start(&owner.place).await, Owner::of(owner.place))
}

pub(crate) async fn end(mut running: Running, owner: Owner, runtime: Runtime) {
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0));
    // All remaining pods belong to clients, and probeshim leaves them alone.
    owner.direct().remove_all().await;
    runtime.end().await;
}

pub(crate) fn liveness(script: &str) -> String {
    format!(
        r#"{{"exec": {{"command": ["sh", "-c", "{script}"]}}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 30, "terminationGracePeriodSeconds": 2}}"#
    )
}
