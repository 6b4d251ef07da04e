//! A relay with fault rules in front of procrun, for `probeshim runtime --fault`.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::error::RunError;
use super::policies;
use crate::config::PolicySettings;
use crate::cri::MeteredChannel;
use crate::events::EventRecorder;
use crate::inventory::{Inventory, RuntimeEvent, Source, Watcher};
use crate::policy::{KnownExecs, NodeView, Policies};
use crate::probe::SpecResolver;
use crate::relay::{CallIds, Relay, RelayConfig, RelayMetrics};
use crate::socket::SocketPath;
use crate::tap::{Decoder, Observations, Tap, TapConfig, TapEvent, TapMetrics};

/// A running relay with fault rules.
#[derive(Debug)]
pub(super) struct FaultRelay {
    relay: Relay,
    drain: CancellationToken,
    _observing: AbortOnDropHandle<()>,
    policies: Policies,
}

impl FaultRelay {
    /// Starts the relay between the clients of `listener` and procrun at `upstream`.
    pub(super) fn start(
        listener: UnixListener,
        upstream: SocketPath,
        settings: PolicySettings,
    ) -> Result<Self, RunError> {
        let (tap, decoder) = Tap::new(TapConfig::default(), TapMetrics::default());
        let (ids, drain) = (CallIds::starting_at(1), CancellationToken::new());
        let (inventory, inventory_rx) = watch::channel(Arc::default());
        let node = NodeView {
            inventory: inventory_rx,
            specs: watch::channel(SpecResolver::default()).1,
            calls: tap.internal_calls(ids.clone()),
            events: Arc::new(EventRecorder::default()),
            known_execs: KnownExecs::default(),
        };
        let policies = Policies::default();
        policies::start(&policies, settings, node, false)?;
        let (inspect_requests, inspect_rx) = mpsc::channel(1);
        let lists = Watcher::start(MeteredChannel::new(&upstream), inspect_rx);
        let observing = tokio::spawn(async move {
            observe(decoder, lists, inventory).await;
            drop(inspect_requests);
        });
        // procrun ends its calls when it stops.
        let config = RelayConfig { upstream, drain_timeout: Duration::ZERO };
        let (tap, policy) = (Arc::new(tap), Arc::new(policies.clone()));
        let relay = Relay::start(listener, config, tap, policy, RelayMetrics::default(), ids, drain.clone())?;
        Ok(Self { relay, drain, _observing: AbortOnDropHandle::new(observing), policies })
    }

    /// Closes all connections of clients.
    pub(super) async fn end(self) -> io::Result<()> {
        self.policies.end("the end of the runtime");
        self.drain.cancel();
        match self.relay.ended().await {
            Some(_) => Ok(()),
            None => Err(io::Error::other("the relay with the fault rules has ended; see the log")),
        }
    }
}

/// Keeps the inventory from the calls of clients and from lists.
async fn observe(
    mut decoder: Decoder,
    mut lists: mpsc::Receiver<RuntimeEvent>,
    snapshots: watch::Sender<Arc<Inventory>>,
) {
    let mut inventory = Arc::<Inventory>::default();
    let mut apply = |source, Observations { observed_since, items }| {
        if !inventory.fold(source, observed_since, Instant::now(), items).is_empty() {
            snapshots.send_replace(inventory.clone());
        }
    };
    let mut events = Vec::new();
    loop {
        tokio::select! {
            more = decoder.next(|event| events.push(event)) => if !more {
                return;
            },
            Some(event) = lists.recv() => if let RuntimeEvent::Observed(source, observations) = event {
                apply(source, observations);
            },
        }
        for event in events.drain(..) {
            match event {
                TapEvent::CallEnded(call) => apply(Source::Call, call.observations),
                TapEvent::Streamed(observations) => apply(Source::Event, observations),
                // The waiting call may be gone.
                TapEvent::Barrier(reached) => drop(reached.send(())),
                TapEvent::ExecRequested(_) | TapEvent::StopRequested(_) | TapEvent::RequestHeld(_) => {}
            }
        }
    }
}
