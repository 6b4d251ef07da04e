//! Stops containers as the kubelet does (`kuberuntime_container.go`: `killContainer`): `Killing` event, preStop hook, predecessors, the rest of
//! the grace period, `StopContainer`. The prober and the kubelet share it.

pub(crate) mod message;
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
pub(crate) use plan::KillPlan;

/// The delay before a failed kill is tried again, as that of a failed sync of the kubelet (`kubelet.go`: `backOffPeriod`).
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Up to this part of the delay is added by chance (`pod_workers.go`: `workerBackOffPeriodJitterFactor`).
const RETRY_JITTER: f64 = 0.5;

/// Returns the delay before a failed kill is tried again.
pub(crate) fn retry_delay() -> Duration {
    RETRY_DELAY.mul_f64(1.0 + RETRY_JITTER * fastrand::f64())
}

/// One attempt to stop a container.
pub(crate) struct KillAttempt<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) events: &'a EventRecorder,
    /// The container, its pod, and what its hook needs.
    pub(crate) container: HookContext,
    pub(crate) plan: &'a KillPlan,
    /// Record of the kill that is shown with the `StopContainer` call. Its grace period is set when the call is made.
    pub(crate) record: Option<KillRecord>,
    /// Containers that end before this one gets SIGTERM, if the grace period allows it.
    pub(crate) predecessors: &'a [CancellationToken],
}

/// The result of one attempt to stop a container.
pub(crate) enum KillResult<A> {
    /// The runtime has stopped it.
    Stopped,
    /// The kill was given up for this reason.
    Aborted(A),
    /// The runtime has not stopped it.
    Failed(Status),
}

impl KillAttempt<'_> {
    /// Makes the attempt. `abort_reason` is asked before the `Killing` event and before `StopContainer`; `on_panic` is called if the hook panics.
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
        let grace_period = wait_for_predecessors(self.predecessors, left).await;
        let HookContext { names, id, .. } = &self.container;
        let record = self.record.map(|record| KillRecord { grace_period, ..record });
        let stopped = self.executor.stop(names, id, grace_period, record).await;
        stopped.map_or_else(KillResult::Failed, |()| KillResult::Stopped)
    }

    /// Runs the preStop hook, until the grace period is over at most. A hook that takes longer goes on, as with the kubelet.
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
                    "a preStop hook failed: {}",
                    sanitize(&error)
                );
                // As with the kubelet, the reason is not in the event: it may hold secrets of the server.
                self.record_event(Event::warning(reason::FAILED_PRE_STOP_HOOK, "PreStopHook failed"));
            }
            Err(HookError::Panicked) => on_panic(),
            Err(HookError::TimedOut) => {
                info!("a preStop hook has not ended within the grace period of {period:?}");
            }
        }
    }

    fn record_event(&self, event: Event) {
        let names = &self.container.names;
        self.events.record(event.for_container(names.pod.clone(), names.container.clone()));
    }
}

/// Waits until the predecessors have ended, for so many seconds at most. Returns the seconds that are left.
pub(crate) async fn wait_for_predecessors(predecessors: &[CancellationToken], seconds: u32) -> u32 {
    if predecessors.is_empty() {
        return seconds;
    }
    let started = Instant::now();
    let all = join_all(predecessors.iter().map(CancellationToken::cancelled));
    let _ = timeout(Duration::from_secs(seconds.into()), all).await;
    let waited = u32::try_from(started.elapsed().as_secs()).unwrap_or(u32::MAX);
    seconds.saturating_sub(waited).max(KillPlan::MIN_GRACE_PERIOD)
}
