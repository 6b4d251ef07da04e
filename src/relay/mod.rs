//! The byte path. Each client connection has its own connection to the runtime, and calls are
//! forwarded unchanged.
//!
//! ```text
//! serve ──► connection ──► session (client ⇄ authority_fix ⇄ h2 │ h2 ⇄ upstream)
//!                             ├─► forward (one call) ──► pipe (one direction)
//!                             │      └─► call ──► observer
//!                             └─► intercept (a call that the policy selects) ──► forward
//! ```

mod backlog;
mod calls;
mod capture;
mod force_close;
mod forward;
mod inlet;
mod outcome;
mod overflow;
mod session;
// Public for its tests and its fuzz target only.
#[doc(hidden)]
pub mod authority_fix;
mod body_tap;
mod call;
mod changed_response;
mod connection;
mod grpc_frames;
mod h2_settings;
mod intercept;
mod marks;
mod metrics;
mod observer;
mod peer;
mod pipe;
mod policy;
mod refusals;
mod reset_rate;
mod serve;
mod turn;
mod unary_response;
mod upstream;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::socket::SocketPath;

pub use capture::{Capture, CaptureBudget, CaptureError};
pub use marks::{CallMarks, DIRECT, DirectMark, DirectTimes, FaultMark, MarkSet};
pub use metrics::RelayMetrics;
pub use observer::{
    BodyStats, CallInfo, CaptureMode, CapturePlan, CompletedCall, Observer, RequestSent, TraceContext,
};
pub use outcome::CallOutcome;
pub use peer::Peer;
pub use policy::{
    CallPolicy, Decision, Effect, Ending, Hold, Interception, Interceptor, MessageChange, MessageEdit,
    MessageEffect, NoPolicy, ResponseSink,
};
pub use unary_response::UnaryResponse;

pub use call::CallIds;

use call::CallRegistry;
use overflow::SecondThread;

/// Number of task polls between two polls of the sockets while tasks are ready. With a larger
/// number, a connection that always has work would run that many turns before the relay learns of
/// the calls of other connections.
const EVENT_INTERVAL: u32 = 1;

/// Configuration of the relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Socket of the container runtime, to which calls are forwarded.
    pub upstream: SocketPath,
    /// Time for which calls in flight may continue once the relay drains.
    pub drain_timeout: Duration,
}

/// Summary of a relay that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelaySummary {
    /// Number of client connections since the start.
    pub connections: u64,
    /// Number of client connections that were still open at the end of the drain timeout and were
    /// aborted.
    pub aborted: usize,
}

/// A relay that runs on its own thread. The connections of a storm have a second one.
#[derive(Debug)]
pub struct Relay {
    ended: oneshot::Receiver<RelaySummary>,
    threads: [Handle; 2],
}

impl Relay {
    /// Starts the relay on its own thread and runtime, so that no other work of this process delays
    /// a byte. The relay ends after `drain` is cancelled and the calls in flight have ended or the
    /// drain timeout is over. Until then `observer` receives every call, and `policy` may intercept
    /// it. Each call takes one of the `numbers`.
    ///
    /// Fails if the runtime or the thread cannot be created, or `listener` cannot be registered.
    pub fn start(
        listener: UnixListener,
        settings: RelayConfig,
        observer: Arc<dyn Observer>,
        policy: Arc<dyn CallPolicy>,
        metrics: RelayMetrics,
        numbers: CallIds,
        drain: CancellationToken,
    ) -> io::Result<Self> {
        let tracker = CallRegistry::new(observer, policy, metrics, numbers);
        let (report, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .event_interval(EVENT_INTERVAL)
            .build()?;
        let second = SecondThread::start()?;
        let threads = [runtime.handle().clone(), second.handle()];
        let listener = {
            let _entered = runtime.enter();
            tokio::net::UnixListener::from_std(listener)?
        };
        thread::Builder::new().name("relay".to_owned()).spawn(move || {
            let summary = runtime.block_on(serve::serve(listener, settings, tracker, drain, second));
            // The receiver is gone if the program is exiting already.
            let _ = report.send(summary);
        })?;
        Ok(Self { ended, threads })
    }

    /// Returns handles of the relay's threads, by which a watchdog notices that one hangs.
    #[must_use]
    pub fn threads(&self) -> [Handle; 2] {
        self.threads.clone()
    }

    /// Waits for the end of the relay. Returns `None` if the relay's thread panicked.
    pub async fn ended(self) -> Option<RelaySummary> {
        self.ended.await.ok()
    }
}
