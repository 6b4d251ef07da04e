//! Runs the prober on its own thread.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cri::MeteredChannel;
use crate::events::EventRecorder;
use crate::handler::Executor;
use crate::policy::Policies;
use crate::prober::{ProbeManager, ProberConfig};
use crate::tap::InternalCalls;

/// Capacity of the queue of inspect requests. Further requests are repeated later.
pub(super) const MAX_INSPECTS: usize = 32_768;

/// A running prober, which stops when this value is dropped.
#[derive(Debug)]
pub(super) struct ProberThread {
    pub(super) prober: ProbeManager,
    /// Handle of the thread, by which a watchdog notices that it hangs.
    pub(super) thread: Handle,
    _end: DropGuard,
}

impl ProberThread {
    /// Starts the prober on its own thread. Its calls are observed like those of clients. `redact`
    /// leaves commands out of messages.
    pub(super) fn start(
        runtime: &MeteredChannel,
        internal_calls: InternalCalls,
        policies: Policies,
        redact: bool,
        events: Arc<EventRecorder>,
        config: ProberConfig,
    ) -> io::Result<Self> {
        let (thread, end) = spawn_prober_thread()?;
        // A connection is driven by the tokio runtime in which it is created.
        let client = {
            let _entered = thread.enter();
            runtime.connect_new()
        };
        let executor = Executor::new(client, Some(internal_calls), redact).with_policies(policies);
        let prober = ProbeManager::start(config, executor, events, thread.clone());
        Ok(Self { prober, thread, _end: end })
    }
}

impl Drop for ProberThread {
    fn drop(&mut self) {
        self.prober.stop();
    }
}

/// Number of tasks that run between two polls for ready connections and timers. With tokio's
/// default of 61, peers that send without pause would delay all others for longer.
const EVENT_INTERVAL: u32 = 8;

/// Starts a thread on which only probes run, so that no other work of this process delays them.
fn spawn_prober_thread() -> io::Result<(Handle, DropGuard)> {
    let runtime = Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()?;
    let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
    let end = stop.clone().drop_guard();
    thread::Builder::new().name("prober".to_owned()).spawn(move || runtime.block_on(stop.cancelled()))?;
    Ok((handle, end))
}
