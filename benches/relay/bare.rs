//! The bare relay: probeshim without any observation of calls. It is this bench itself, started
//! with another argument.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use probeshim::cri::MethodName;
use probeshim::relay::{
    CallIds, CapturePlan, CompletedCall, NoPolicy, Observer, Relay, RelayConfig, RelayMetrics,
};
use probeshim::socket::{BindMode, SocketPath, bind};
use tokio_util::sync::CancellationToken;

/// First argument of a bench that runs as a relay.
pub(crate) const ARGUMENT: &str = "bare-relay";

/// An observer that ignores all calls.
#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn capture_plan(&self, _method: &MethodName) -> CapturePlan {
        CapturePlan::default()
    }

    fn on_end(&self, _call: CompletedCall) {}
}

/// Relays from one socket to another until it is killed.
pub(crate) fn run(listen: &Path, upstream: &Path) {
    let upstream = SocketPath::new(upstream).unwrap();
    let listening = bind(&SocketPath::new(listen).unwrap(), BindMode::InheritFrom(&upstream)).unwrap();
    let settings = RelayConfig { upstream, drain_timeout: Duration::ZERO };
    let drain = CancellationToken::new();
    let relay = Relay::start(
        listening.listener,
        settings,
        Arc::new(Nobody),
        Arc::new(NoPolicy),
        RelayMetrics::default(),
        CallIds::starting_at(1),
        drain,
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(relay.ended());
}
