//! Kills one container for a probe, and repeats the kill until the container has ended or the kill
//! is aborted.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep};
use tracing::error;

use super::ManagerInner;
use crate::events::{Event, reason};
use crate::handler::{ContainerNames, HookContext};
use crate::kill::{KillAttempt, KillResult, retry_delay};
use crate::manifest::ContainerSpec;
use crate::prober::pod::{Effects, KillAbort, KillRequest, ProbedPod};
use crate::tap::KillRecord;
use crate::terminal::sanitize;

/// Time within which the end of a stopped container becomes visible, at the latest by a relist.
const EXIT_VISIBLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two checks for the end of a stopped container.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Task that kills one container.
pub(super) struct KillTask {
    pub(super) shared: Arc<ManagerInner>,
    pub(super) pod: Arc<ProbedPod>,
    pub(super) order: KillRequest,
}

impl KillTask {
    /// Kills the container, unless the kill is aborted. A panic is caught and counted, and releases
    /// the container.
    pub(super) async fn run(self) {
        if AssertUnwindSafe(self.kill()).catch_unwind().await.is_err() {
            error!("bug in probeshim: the kill of a container panicked; please report it");
            self.shared.metrics.fault();
            self.release();
        }
    }

    async fn kill(&self) {
        loop {
            match self.attempt().await {
                KillResult::Stopped if self.has_ended().await => {
                    self.shared.metrics.killed(self.order.probe_type.title(), true);
                    let name = self.order.container.name.as_deref().unwrap_or_default();
                    self.pod.lock().killed(name, self.order.probe_type);
                    return;
                }
                KillResult::Stopped => {
                    self.shared.metrics.killed(self.order.probe_type.title(), false);
                    let message =
                        "The runtime reports that it has stopped the container, but the container still runs";
                    self.record_event(Event::warning(reason::KILL_FAILED, message));
                }
                KillResult::Aborted(KillAbort::Gone) => return,
                KillResult::Aborted(abort) => {
                    let message = format!("Kill aborted: {}", abort.reason());
                    self.record_event(Event::normal(reason::KILL_ABORTED, message));
                    self.release();
                    return;
                }
                KillResult::Failed(status) => {
                    self.shared.metrics.killed(self.order.probe_type.title(), false);
                    let message =
                        format!("The runtime failed to stop the container: {}", sanitize(status.message()));
                    self.record_event(Event::warning(reason::KILL_FAILED, message));
                    sleep(retry_delay()).await;
                }
            }
        }
    }

    /// Returns whether the end of the container becomes visible within `EXIT_VISIBLE_TIMEOUT`.
    async fn has_ended(&self) -> bool {
        let until = Instant::now() + EXIT_VISIBLE_TIMEOUT;
        while self.pod.lock().abort_reason(&self.order.container_id, Instant::now()) != Some(KillAbort::Gone)
        {
            if Instant::now() >= until {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
        true
    }

    async fn attempt(&self) -> KillResult<KillAbort> {
        let _turn = self.pod.turn.acquire().await;
        let order = &self.order;
        let record = KillRecord {
            probe: order.probe_type.name().to_owned(),
            message: order.kill.message.clone(),
            threshold: order.threshold,
            grace_period: order.kill.grace_period,
            failures: order.failures.clone(),
        };
        let attempt = KillAttempt {
            executor: &self.shared.executor,
            events: &self.shared.events,
            container: self.hook_context(),
            plan: &order.kill,
            record: Some(record),
            predecessors: &[],
        };
        let abort_reason = || self.pod.lock().abort_reason(&order.container_id, Instant::now());
        attempt.run(abort_reason, || self.shared.metrics.fault()).await
    }

    fn hook_context(&self) -> HookContext {
        let (names, id) = (self.names(), self.order.container_id.clone());
        let state = self.pod.lock();
        let name = self.order.container.name.as_deref().unwrap_or_default();
        let container = state.spec.container(name).cloned();
        let container = container.unwrap_or_else(|| Arc::new(ContainerSpec::named(name)));
        let address = state.sandbox_address.clone().unwrap_or_else(|| "".into());
        HookContext { names, id, container, address }
    }

    /// Ends the kill without success: the probe starts to count again.
    fn release(&self) {
        let (now, mut effects) = (Instant::now(), Effects::default());
        let mut state = self.pod.lock();
        state.kill_aborted(&self.order, now);
        state.sync(now, &mut effects);
        drop(state);
        self.shared.apply_effects(&self.pod, effects);
    }

    fn names(&self) -> ContainerNames {
        ContainerNames { pod: self.pod.lock().names.clone(), container: self.order.container.clone() }
    }

    fn record_event(&self, event: Event) {
        let ContainerNames { pod, container } = self.names();
        self.shared.events.record(event.for_container(pod, container));
    }
}
