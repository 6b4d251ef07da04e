//! The byte path: every client connection is tied to a connection of its own to the runtime, and calls cross unchanged.
//!
//! ```text
//! serve ──► connection ──► session (client ⇄ authority_fix ⇄ h2 │ h2 ⇄ upstream) ──► forward (one call) ──► pipe (one direction)
//!                                                                                     └─► call ──► observer
//! ```

mod backlog;
mod calls;
mod capture;
mod forward;
mod inlet;
mod outcome;
mod session;
// Public for its tests and its fuzz target only.
#[doc(hidden)]
pub mod authority_fix;
mod body_tap;
mod call;
mod connection;
mod grpc_frames;
mod h2_settings;
mod metrics;
mod observer;
mod peer;
mod pipe;
mod refusals;
mod reset_rate;
mod serve;
mod turn;
mod upstream;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::socket::SocketPath;

pub use capture::{Capture, CaptureBudget, CaptureError};
pub use metrics::RelayMetrics;
pub use observer::{
    BodyStats, CallInfo, CaptureMode, CapturePlan, CompletedCall, Observer, RequestSent, TraceContext,
};
pub use outcome::CallOutcome;
pub use peer::Peer;

pub use call::CallIds;

use call::CallRegistry;

/// Polls of tasks after which sockets are looked at again while there are tasks that are ready. With more, the calls of others
/// would wait for as many turns of a connection that always has more to do before the relay knows of them.
const EVENT_INTERVAL: u32 = 1;

/// What the relay runs on.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where calls go.
    pub upstream: SocketPath,
    /// How long calls in flight may go on once the relay is told to drain.
    pub drain_timeout: Duration,
}

/// How the relay ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelaySummary {
    /// Client connections since the start.
    pub connections: u64,
    /// Client connections that were still open when the drain timeout was over, and were cut.
    pub aborted: usize,
}

/// A relay that runs on its own thread.
#[derive(Debug)]
pub struct Relay {
    ended: oneshot::Receiver<RelaySummary>,
}

impl Relay {
    /// Starts the relay on a thread and a runtime of its own, so that nothing else that this process does delays a byte.
    /// It ends after `drain` is cancelled and the calls in flight are done or out of time. Until then `observer` is told of
    /// every call, each of which takes one of the `numbers`.
    pub fn start(
        listener: UnixListener,
        settings: RelayConfig,
        observer: Arc<dyn Observer>,
        metrics: RelayMetrics,
        numbers: CallIds,
        drain: CancellationToken,
    ) -> io::Result<Self> {
        let tracker = CallRegistry::new(observer, metrics, numbers);
        let (report, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .event_interval(EVENT_INTERVAL)
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::UnixListener::from_std(listener)?
        };
        thread::Builder::new().name("relay".to_owned()).spawn(move || {
            let summary = runtime.block_on(serve::serve(listener, settings, tracker, drain));
            // Nobody waits any more if the program is ending at once.
            let _ = report.send(summary);
        })?;
        Ok(Self { ended })
    }

    /// Waits for the end. `None` if the relay's thread panicked.
    pub async fn ended(self) -> Option<RelaySummary> {
        self.ended.await.ok()
    }
}
