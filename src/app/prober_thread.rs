//! The prober on a thread of its own, joined to what it needs and to what it tells.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use crate::cri::MeteredChannel;
use crate::kubelet::Kubelet;
use crate::prober::{ContainerEvent, EventSink, Executor, GlobalEvent, ProbeManager, ProberConfig};
use crate::history::{Event, EventHistory};
use crate::socket::SocketPath;
use crate::tap::{InternalCalls, PodRef};
use crate::terminal::sanitize;

/// Questions about pods and containers that may wait to be asked; more are asked again later.
pub(super) const MAX_INSPECTS: usize = 32_768;

/// A prober that works until this is dropped.
#[derive(Debug)]
pub(super) struct ProberThread {
    pub(super) prober: ProbeManager,
    _end: DropGuard,
}

/// Keeps what the prober tells among the events.
#[derive(Debug)]
struct ProberEventSink {
    events: Arc<EventHistory>,
    /// The kubelet that acts on probe results, once it has started.
    kubelet: Arc<OnceLock<Kubelet>>,
}

impl ProberThread {
    /// Starts it; its calls are told of among all others.
    pub(super) fn start(
        (runtime_channel, upstream): (&MeteredChannel, &SocketPath),
        (internal_calls, redact): (InternalCalls, bool),
        (events, kubelet): (Arc<EventHistory>, Arc<OnceLock<Kubelet>>),
        config: ProberConfig,
    ) -> io::Result<Self> {
        let (runtime, end) = spawn_prober_thread()?;
        // Its connection is driven where it is used.
        let client = {
            let _entered = runtime.enter();
            runtime_channel.connect_new(upstream)
        };
        let executor = Executor::new(client, Some(internal_calls), redact);
        let prober =
            ProbeManager::start(config, executor, Arc::new(ProberEventSink { events, kubelet }), runtime);
        Ok(Self { prober, _end: end })
    }
}

impl Drop for ProberThread {
    fn drop(&mut self) {
        self.prober.stop();
    }
}

impl EventSink for ProberEventSink {
    fn container_event(&self, event: ContainerEvent) {
        self.events.push(Event::from_probe_event(event));
    }

    fn global_event(&self, global: GlobalEvent) {
        let event = Event::from_global_event(&global);
        warn!("{}", sanitize(&event.message));
        self.events.push(event);
    }

    fn result_changed(&self, pod: &PodRef) {
        if let Some(kubelet) = self.kubelet.get() {
            kubelet.wake(pod);
        }
    }
}

/// Tasks that run before the thread of probes looks for connections and timers that are ready. tokio's 61 would let peers that send without
/// pause hold up all others for longer.
const EVENT_INTERVAL: u32 = 8;

/// A thread on which probes are made: nothing else that this process does delays them.
fn spawn_prober_thread() -> io::Result<(Handle, DropGuard)> {
    let runtime = Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()?;
    let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
    let end = stop.clone().drop_guard();
    thread::Builder::new().name("prober".to_owned()).spawn(move || runtime.block_on(stop.cancelled()))?;
    Ok((handle, end))
}
