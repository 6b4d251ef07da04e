//! The relay alone: what probeshim would be if nobody watched. It is this bench itself, started again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use probeshim::cri::MethodName;
use probeshim::relay::{Captures, Metrics, Numbers, Observed, Observer, Relay, Settings};
use probeshim::socket::{BindMode, SocketPath, bind};
use tokio_util::sync::CancellationToken;

/// The first argument of a bench that is to be a relay.
pub(crate) const ARGUMENT: &str = "bare-relay";

/// Looks away.
#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn captures(&self, _method: &MethodName) -> Captures {
        Captures::default()
    }

    fn ended(&self, _call: Observed) {}
}

/// Relays from one socket to another until it is killed.
pub(crate) fn run(listen: &Path, upstream: &Path) {
    let upstream = SocketPath::new(upstream).unwrap();
    let listening = bind(&SocketPath::new(listen).unwrap(), BindMode::InheritFrom(&upstream)).unwrap();
    let settings = Settings { upstream, drain_timeout: Duration::ZERO };
    let drain = CancellationToken::new();
    let relay = Relay::start(
        listening.listener,
        settings,
        Arc::new(Nobody),
        Metrics::default(),
        Numbers::from(1),
        drain,
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(relay.ended());
}
