//! The prober on a thread of its own, joined to what it needs and to what it tells.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cri::MeteredChannel;
use crate::events::EventRecorder;
use crate::handler::Executor;
use crate::prober::{ProbeManager, ProberConfig};
use crate::tap::InternalCalls;

/// Questions about pods and containers that may wait to be asked; more are asked again later.
pub(super) const MAX_INSPECTS: usize = 32_768;

/// A prober that works until this is dropped.
#[derive(Debug)]
pub(super) struct ProberThread {
    pub(super) prober: ProbeManager,
    _end: DropGuard,
}

impl ProberThread {
    /// Starts the prober on a thread of its own. Its calls are observed like those of clients. `redact`: commands are left out of messages.
    pub(super) fn start(
        runtime: &MeteredChannel,
        internal_calls: InternalCalls,
        redact: bool,
        events: Arc<EventRecorder>,
        config: ProberConfig,
    ) -> io::Result<Self> {
        let (thread, end) = spawn_prober_thread()?;
        // A connection is driven by the runtime in which it is made.
        let client = {
            let _entered = thread.enter();
            runtime.connect_new()
        };
        let executor = Executor::new(client, Some(internal_calls), redact);
        let prober = ProbeManager::start(config, executor, events, thread);
        Ok(Self { prober, _end: end })
    }
}

impl Drop for ProberThread {
    fn drop(&mut self) {
        self.prober.stop();
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
