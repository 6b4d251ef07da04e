//! State that the workers of a prober share, and the housekeeping of its pods.

mod killer;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tracing::error;

use crate::events::EventRecorder;
use crate::handler::Executor;
use crate::handler::meter::ThreadUse;
use crate::inventory::InspectRequest;
use crate::object_ref::PodRef;
use crate::prober::attempt_reporter::AttemptReporter;
use crate::prober::enforcement::Enforcement;
use crate::prober::metrics::ProberMetrics;
use crate::prober::pod::{Effects, ProbedPod};
use crate::prober::pod_table::PodTable;

use killer::KillTask;
use worker::Worker;

/// Interval between two checks of all pods.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);

/// Number of pods that are checked before other tasks run.
const PODS_PER_TICK: usize = 64;

/// Time for which a kubelet counts as present after it used the runtime.
pub(crate) const KUBELET_TTL: Duration = Duration::from_secs(60);

/// State that the workers share.
#[derive(Debug)]
pub(in crate::prober) struct ManagerInner {
    pub(in crate::prober) executor: Executor,
    pub(in crate::prober) metrics: ProberMetrics,
    pub(in crate::prober) events: Arc<EventRecorder>,
    /// Sender of the pods whose probe results have changed.
    pub(in crate::prober) result_updates: broadcast::Sender<Arc<PodRef>>,
    pub(in crate::prober) inspect_requests: mpsc::Sender<InspectRequest>,
    pub(in crate::prober) runtime: Handle,
    pub(in crate::prober) enforcement: Arc<Enforcement>,
    pub(in crate::prober) pods: Mutex<PodTable>,
    /// Time that probes have recently taken from the prober's thread.
    pub(in crate::prober) thread_use: Arc<ThreadUse>,
    pub(in crate::prober) attempts: AttemptReporter,
}

impl ManagerInner {
    pub(in crate::prober) fn lock(&self) -> MutexGuard<'_, PodTable> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::prober) fn pods(&self) -> Vec<Arc<ProbedPod>> {
        self.lock().pods.values().filter_map(|entry| entry.pod.clone()).collect()
    }

    /// Returns whether the prober is younger than a period, so that workers are spread over it.
    pub(in crate::prober) fn is_young(&self, period: Duration) -> bool {
        let pods = self.lock();
        if pods.is_settled {
            return false;
        }
        !pods.is_listed || pods.since.elapsed() < period
    }

    /// Checks every pod once per interval, a few at a time, so that no probe waits for the checks
    /// of all pods.
    pub(in crate::prober) async fn housekeeping(self: Arc<Self>) {
        loop {
            sleep(HOUSEKEEPING_INTERVAL).await;
            let (keys, is_kubelet_there) = {
                let pods = self.lock();
                if pods.is_over {
                    return;
                }
                let is_kubelet_there = pods.kubelet_seen.is_some_and(|seen| seen.elapsed() < KUBELET_TTL);
                (pods.pods.keys().cloned().collect::<Vec<_>>(), is_kubelet_there)
            };
            for keys in keys.chunks(PODS_PER_TICK) {
                for key in keys {
                    if catch_unwind(AssertUnwindSafe(|| self.look(key, is_kubelet_there))).is_err() {
                        error!("bug in probeshim: the check of a pod panicked; please report it");
                        self.metrics.fault();
                    }
                }
                yield_now().await;
            }
        }
    }

    /// Syncs a pod if its sync time has come, reports kills that were not observed, and requests
    /// missing information.
    pub(in crate::prober) fn look(self: &Arc<Self>, key: &Arc<str>, is_kubelet_there: bool) {
        let (now, mut effects) = (Instant::now(), Effects::default());
        let pods = self.lock();
        let Some(entry) = pods.pods.get(key) else { return };
        let (unknown, pod) = (entry.missing_info(), entry.pod.clone());
        drop(pods);
        self.send_inspect_requests(unknown);
        let Some(pod) = pod else { return };
        let mut state = pod.lock();
        if state.is_released() || state.next_sync <= now {
            state.sync(now, &mut effects);
        }
        state.overdue(is_kubelet_there, now, &mut effects);
        drop(state);
        self.apply_effects(&pod, effects);
    }

    /// Queues inspect requests. A request that finds the queue full is repeated a second later.
    pub(in crate::prober) fn send_inspect_requests(&self, requests: Vec<InspectRequest>) {
        for request in requests {
            let _ = self.inspect_requests.try_send(request);
        }
    }

    /// Resolves the specification of a pod and updates the pod. If `is_news` is false, only the
    /// specification may have changed, and nothing is done if it is the same. Returns `None` if the
    /// pod is not probed.
    pub(in crate::prober) fn refresh(
        &self,
        key: &Arc<str>,
        is_news: bool,
    ) -> Option<(Arc<ProbedPod>, Effects)> {
        let (now, mut pods) = (Instant::now(), self.lock());
        let (since, specs) = (pods.since, pods.specs.clone());
        let entry = pods.pods.get_mut(key)?;
        for container in &entry.containers {
            self.enforcement.mark_matched(&entry.sandbox, container);
        }
        let spec = specs.resolve_pod(&entry.sandbox, &entry.containers);
        if entry.pod.is_none() && !spec.is_probed() {
            return None;
        }
        let pod = entry.pod.get_or_insert_with(|| {
            Arc::new(ProbedPod::new(entry.sandbox.pod.clone(), self.enforcement.clone(), since, now))
        });
        let (pod, mut effects) = (pod.clone(), Effects::default());
        let mut state = pod.lock();
        if is_news || *state.spec != spec {
            entry.update_pod(&mut state, spec, now, &mut effects);
        }
        drop(state);
        self.send_inspect_requests(entry.missing_info());
        Some((pod, effects))
    }

    /// Executes the effects of a change. The lock of the pod must not be held.
    pub(in crate::prober) fn apply_effects(self: &Arc<Self>, pod: &Arc<ProbedPod>, effects: Effects) {
        // Metrics are counted first, so that a reader who sees an event finds it in the metrics.
        for probe_type in effects.would_kill {
            self.metrics.would_kill(probe_type.title());
        }
        for event in effects.events {
            self.metrics.count_agreement(event.reason);
            self.events.record(event);
        }
        if effects.result_changed {
            let pod = pod.lock().names.clone();
            // Sending fails if there is no receiver.
            let _ = self.result_updates.send(pod);
        }
        for event in effects.global_events {
            self.events.log_and_record(event);
        }
        for order in effects.kill_requests {
            self.runtime.spawn(KillTask { shared: self.clone(), pod: pod.clone(), order }.run());
        }
        for (signals, probe) in effects.workers_to_start {
            let is_spread = effects.jitter;
            let worker = Worker {
                shared: self.clone(),
                pod: pod.clone(),
                signals,
                is_spread,
                meter: None,
                discarded: 0,
            };
            self.metrics.started();
            let metrics = self.metrics.clone();
            self.runtime.spawn(async move {
                worker.run(probe).await;
                metrics.ended();
            });
        }
    }
}
