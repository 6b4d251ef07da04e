//! Stops containers as the kubelet does (`kuberuntime_container.go`: `killContainer`): `Killing`
//! event, preStop hook, predecessors, the rest of the grace period, `StopContainer`. The prober and
//! the built-in kubelet share this module.

pub(crate) mod message;
mod observed;
mod plan;

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{info, warn};

use crate::events::{Event, EventRecorder, reason};
use crate::handler::{ContainerNames, Executor, HookContext, HookError};
use crate::tap::KillRecord;
use crate::terminal::sanitize;

pub(crate) use message::KillCause;
pub use observed::ObservedKill;
pub(crate) use plan::KillPlan;

/// Delay before a failed kill is repeated. It equals the delay after a failed sync of the kubelet
/// (`kubelet.go`: `backOffPeriod`).
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Largest part of the delay that is added at random (`pod_workers.go`:
/// `workerBackOffPeriodJitterFactor`).
const RETRY_JITTER: f64 = 0.5;

/// Returns the delay before a failed kill is repeated, with jitter.
pub(crate) fn retry_delay() -> Duration {
    RETRY_DELAY.mul_f64(1.0 + RETRY_JITTER * fastrand::f64())
}

/// Attempt to stop a container.
pub(crate) struct KillAttempt<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) events: &'a EventRecorder,
    /// The container, its pod, and the inputs of its hook.
    pub(crate) container: HookContext,
    pub(crate) plan: &'a KillPlan,
    /// Record of the kill that is shown with the `StopContainer` call. Its grace period is set when
    /// the call is made.
    pub(crate) record: Option<KillRecord>,
    /// Containers that end before this one receives SIGTERM, if the grace period is long enough.
    pub(crate) predecessors: &'a [CancellationToken],
}

/// Result of an attempt to stop a container.
pub(crate) enum KillResult<A> {
    /// The runtime has stopped the container.
    Stopped,
    /// The kill was aborted for this reason.
    Aborted(A),
    /// The runtime has not stopped the container.
    Failed(Status),
}

impl KillAttempt<'_> {
    /// Makes the attempt. It calls `abort_reason` before the `Killing` event and before
    /// `StopContainer`, and `on_panic` if the hook panics.
    pub(crate) async fn run<A>(
        self,
        abort_reason: impl Fn() -> Option<A>,
        on_panic: impl Fn(),
    ) -> KillResult<A> {
        if let Some(reason) = abort_reason() {
            return KillResult::Aborted(reason);
        }
        self.record_event(Event::normal(reason::KILLING, &*self.plan.message));
        let started = Instant::now();
        self.pre_stop(on_panic).await;
        if let Some(reason) = abort_reason() {
            return KillResult::Aborted(reason);
        }
        let left = self.plan.grace_period_after(started.elapsed());
        let left = wait_for_predecessors(self.predecessors, left).await;
        let grace_period = KillPlan::stop_timeout(left);
        let HookContext { names, id, .. } = &self.container;
        let record = self.record.map(|record| KillRecord { grace_period, ..record });
        let stopped = self.executor.stop(names, id, grace_period, record).await;
        stopped.map_or_else(KillResult::Failed, |()| KillResult::Stopped)
    }

    /// Runs the preStop hook, at most until the grace period is over. As with the kubelet, a hook
    /// that takes longer continues.
    async fn pre_stop(&self, on_panic: impl Fn()) {
        let Some((hook, period)) = self.plan.pre_stop.clone().zip(self.plan.hook_period()) else { return };
        match self.container.clone().run(hook, self.executor.clone(), Some(period)).await {
            Ok(()) => {}
            Err(HookError::Failed(error)) => {
                let ContainerNames { pod, container } = &self.container.names;
                let (namespace, pod) = (pod.namespace.as_deref(), pod.name.as_deref());
                warn!(
                    namespace,
                    pod,
                    container = container.name,
                    "preStop hook failed: {}",
                    sanitize(&error)
                );
                // The event omits the reason, as with the kubelet: it may contain secrets of the
                // server.
                self.record_event(Event::warning(reason::FAILED_PRE_STOP_HOOK, "PreStopHook failed"));
            }
            Err(HookError::Panicked) => on_panic(),
            Err(HookError::TimedOut) => {
                info!("preStop hook did not end within the grace period of {period:?}");
            }
        }
    }

    fn record_event(&self, event: Event) {
        let names = &self.container.names;
        self.events.record(event.for_container(names.pod.clone(), names.container.clone()));
    }
}

/// Waits at most `seconds` until the predecessors have ended. Returns the remaining seconds. A
/// container whose hook used up the grace period waits for none (`killContainer`).
pub(crate) async fn wait_for_predecessors(predecessors: &[CancellationToken], seconds: u32) -> u32 {
    if predecessors.is_empty() {
        return seconds;
    }
    let started = Instant::now();
    let all = join_all(predecessors.iter().map(CancellationToken::cancelled));
    let _ = timeout(Duration::from_secs(seconds.into()), all).await;
    let waited = u32::try_from(started.elapsed().as_secs()).unwrap_or(u32::MAX);
    seconds.saturating_sub(waited)
}
