//! An observer that kills probeshim at one of its calls to the runtime.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use probeshim::cri::MethodName;
use probeshim::relay::{self, CallIds, CapturePlan, CompletedCall, Observer, Relay};
use probeshim::socket::{BindMode, BoundPath, SocketPath, bind};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use super::{ACTS, AT_ONCE, Moment};
use crate::program::{Place, Running};

/// Observer that counts calls to a runtime, and kills the caller at one of them.
#[derive(Debug, Default)]
pub(super) struct Killer {
    victim: AtomicI32,
    asked: AtomicUsize,
    answered: AtomicUsize,
    /// The call at which the caller is killed.
    at: Option<Moment>,
    has_killed: AtomicBool,
}

impl Killer {
    /// Returns an observer that kills the caller at the moment `at`, if there is one.
    pub(super) fn new(at: Option<Moment>) -> Arc<Self> {
        Arc::new(Self { at, ..Self::default() })
    }

    /// Starts a relay in front of procrun.
    pub(super) fn between(self: Arc<Self>, place: &Place) -> (Relay, Option<BoundPath>, CancellationToken) {
        let upstream = SocketPath::new(&place.at("procrun.sock")).unwrap();
        let listen = SocketPath::new(&place.at("runtime.sock")).unwrap();
        let listening = bind(&listen, BindMode::InheritFrom(&upstream)).unwrap();
        let settings = relay::RelayConfig { upstream, drain_timeout: Duration::ZERO };
        let (numbers, drain) = (CallIds::starting_at(1), CancellationToken::new());
        let metrics = relay::RelayMetrics::default();
        let relay = Relay::start(
            listening.listener,
            settings,
            self,
            Arc::new(relay::NoPolicy),
            metrics,
            numbers,
            drain.clone(),
        );
        (relay.unwrap(), listening.claim, drain)
    }

    /// Sets the process to be killed, and starts to count calls.
    pub(super) fn is_after(&self, running: &Running) {
        self.victim.store(Pid::from_child(&running.process).as_raw_nonzero().get(), Ordering::SeqCst);
    }

    /// Returns the number of calls.
    pub(super) fn calls(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Ends the count of calls. The process is killed at none of the later calls.
    pub(super) fn stop(&self) {
        self.victim.store(0, Ordering::SeqCst);
    }

    pub(super) fn walk(&self, calls: usize) -> Walk {
        Walk { calls, has_killed: self.has_killed.load(Ordering::SeqCst) }
    }

    fn now(&self, moment: Moment) {
        if self.at == Some(moment)
            && let Some(victim) = Pid::from_raw(self.victim.load(Ordering::SeqCst))
        {
            kill_process(victim, Signal::KILL).unwrap();
            self.has_killed.store(true, Ordering::SeqCst);
        }
    }
}

impl Observer for Killer {
    fn capture_plan(&self, method: &MethodName) -> CapturePlan {
        if ACTS.contains(&method.label()) && self.victim.load(Ordering::SeqCst) != 0 {
            self.now(Moment::Asked(self.asked.fetch_add(1, Ordering::SeqCst) + 1));
        }
        CapturePlan::default()
    }

    fn on_end(&self, call: CompletedCall) {
        if ACTS.contains(&call.info.method.label()) && self.victim.load(Ordering::SeqCst) != 0 {
            self.now(Moment::Answered(self.answered.fetch_add(1, Ordering::SeqCst) + 1));
        }
    }
}

/// Result of a walk.
pub(super) struct Walk {
    /// Number of calls.
    pub(super) calls: usize,
    /// Whether the process was killed.
    has_killed: bool,
}

/// Runs walks, several at the same time. The number of calls in a walk depends on the number of
/// probe attempts, and so on the machine: a moment that a walk does not reach kills no process.
/// Every walk has at least `sure` calls.
pub(super) async fn all(walks: impl Iterator<Item = impl Future<Output = Walk>>, sure: usize) {
    let walked: Vec<Walk> = iter(walks).buffer_unordered(AT_ONCE).collect().await;
    let killed = walked.iter().filter(|walk| walk.has_killed).count();
    // The process is killed before and after each of these calls.
    assert!(killed >= 2 * sure, "{killed} of {}", walked.len());
}
