//! Pod worker: reads the state of one pod, computes the pod actions, executes them, and repeats
//! (kubelet: `pod_workers.go`: `podWorkerLoop`).

mod client_pod;
mod compute_actions;
mod image;
mod image_volumes;
mod kill;
mod mounts;
mod network;
mod reject;
mod requeue;
mod start_container;
mod start_context;
mod status;
mod sync;
mod sync_result;
mod terminate;

use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::debug;

use super::admission::Rejection;
use super::context::WorkerContext;
use super::pod_dir::PodDir;
use super::pod_status::PodStatusExt as _;
use super::published_pod::{FailureCause, PublishedPod};
use super::runtime_status::{ContainerInstance, InstanceState, RuntimePodStatus};
use crate::events::Event;
use crate::inventory::Sandbox;
use crate::manifest::pod::{Pod, PodOrigin};
use crate::manifest::{PodSpec, ProbeType};
use crate::object_ref::{ContainerRef, PodRef};
use crate::prober::{EnforcementMode, PodReport, ProbeResult, SyncInProgress};

use client_pod::Created;
use compute_actions::{ActionInputs, compute_pod_actions, should_restart_after_kill};
use requeue::{Requeue, RequeueDelay};
use status::{DEADLINE_EXCEEDED, StatusInputs, WaitingReasons};
use sync_result::{SyncError, SyncResult};

/// Delay before a failed termination or removal is tried again, or a sandbox without an address is
/// replaced.
const TERMINATION_RETRY: Duration = Duration::from_secs(1);

/// Signals to a pod worker.
#[derive(Debug, Default)]
pub(super) struct WorkerSignals {
    /// Wakes the worker for a sync.
    pub(super) sync: Notify,
    /// Requests that the pod terminates and is removed.
    pub(super) terminate: CancellationToken,
    /// Forces the termination: the pod is removed without waiting for its containers.
    pub(super) force: CancellationToken,
    /// Override of the pod's grace period, in seconds. It only shrinks.
    grace_period: watch::Sender<Option<u32>>,
}

impl WorkerSignals {
    /// Requests termination of a pod whose own grace period is `own` seconds. An override counts if
    /// it comes with the first request or is shorter than the current period: the period of a
    /// terminating pod only shrinks (kubelet: `pod_workers.go`: `calculateEffectiveGracePeriod`).
    pub(super) fn request_termination(&self, override_seconds: Option<u32>, own: u32) {
        let is_first = !self.terminate.is_cancelled();
        self.grace_period.send_if_modified(|known| {
            let shorter = override_seconds.filter(|seconds| is_first || *seconds < known.unwrap_or(own));
            let is_modified = shorter.is_some() && shorter != *known;
            *known = shorter.or(*known);
            is_modified
        });
        self.terminate.cancel();
    }

    /// Returns a receiver of the override of the grace period.
    pub(super) fn grace_periods(&self) -> watch::Receiver<Option<u32>> {
        self.grace_period.subscribe()
    }
}

/// Runs one pod.
#[derive(Debug)]
pub(super) struct PodWorker {
    context: Arc<WorkerContext>,
    pod: Arc<Pod>,
    /// Updates of the desired pod.
    pods: watch::Receiver<Arc<Pod>>,
    names: Arc<PodRef>,
    dir: PodDir,
    signals: Arc<WorkerSignals>,
    published: watch::Sender<PublishedPod>,
    /// Reason why the pod is not admitted; `None` if it is.
    rejection: Option<Rejection>,
    state: Mutex<WorkerState>,
}

/// State that a pod worker keeps between syncs.
#[derive(Debug, Default)]
struct WorkerState {
    /// The runtime's state of the pod at the last sync.
    runtime_status: Option<Arc<RuntimePodStatus>>,
    /// Reasons why containers have not been started.
    reasons: WaitingReasons,
    /// Reasons why volumes were not updated in the last sync.
    outdated_volumes: BTreeSet<String>,
    /// Names of containers whose subPaths could not be unmounted; the failure has been logged.
    unreleased: HashSet<String>,
    /// Sandbox and containers created for a client since the last check whether the client still
    /// wants them.
    created: Created,
}

impl PodWorker {
    pub(super) fn new(
        context: Arc<WorkerContext>,
        pods: watch::Receiver<Arc<Pod>>,
        signals: Arc<WorkerSignals>,
        published: watch::Sender<PublishedPod>,
    ) -> Self {
        let pod = pods.borrow().clone();
        let dir = PodDir::for_pod(&pod, &context.node.pods);
        let names = Arc::new(names(&pod));
        let rejection = context.admission.rejection(&pod);
        Self { context, pod, pods, names, dir, signals, published, rejection, state: Mutex::default() }
    }

    /// Runs the pod through the worker phases: syncs it until it ends or its termination is
    /// requested, terminates it, and removes it once it is no longer desired. Returns whether
    /// nothing of the pod is left.
    pub(super) async fn run(mut self) -> bool {
        let signals = self.signals.clone();
        if self.pod.origin == PodOrigin::Orphan {
            return self.end().await;
        }
        if self.pod.is_client_pod() {
            self.run_client_pod().await;
            return true;
        }
        if let Some(rejection) = &self.rejection {
            return self.reject(rejection).await;
        }
        if let Some(prober) = &self.context.prober {
            // The probe workers start before the containers exist.
            prober.add_pod(self.pending_sandbox());
        }
        tokio::select! {
            () = self.run_loop() => {}
            () = signals.terminate.cancelled() => {}
        }
        self.end().await
    }

    /// Returns the sandbox that the pod will have, before it exists.
    fn pending_sandbox(&self) -> Sandbox {
        let text = |texts: &crate::manifest::pod::StringMap| texts.iter().collect();
        let (labels, annotations) = (text(&self.pod.labels), text(&self.pod.annotations));
        Sandbox::pending((*self.names).clone(), labels, annotations, Instant::now())
    }

    /// Syncs the pod repeatedly until it has ended.
    async fn run_loop(&mut self) {
        let mut requeue = Requeue::default();
        let mut in_progress = None;
        loop {
            self.pod = self.pods.borrow_and_update().clone();
            let synced = self.sync(&mut in_progress).await;
            let (ended, is_changed) = (Instant::now(), matches!(synced, Ok(SyncResult::Changed)));
            if matches!(synced, Ok(SyncResult::Terminal)) {
                return;
            }
            self.wait(requeue.after(synced, &self.pod)).await;
            if !is_changed {
                self.wait_for_relist(ended).await;
            }
        }
    }

    /// Waits until a relist that began after the last sync has ended, as the kubelet does before
    /// each sync (`pod_workers.go`: `podWorkerLoop`). A sync that has changed something needs no
    /// relist of the node, because the kubelet relists its pod at once (`kubelet.go`:
    /// `RequestPodRelist`). Publishes changed probe results meanwhile, as the kubelet's status
    /// manager does. The states of the containers are those of the last sync.
    async fn wait_for_relist(&self, last_sync: Instant) {
        let mut relist = pin!(self.context.pleg_cache.newer_than(last_sync));
        if relist.as_mut().now_or_never().is_some() {
            return;
        }
        loop {
            let runtime_status = self.lock().runtime_status.clone();
            if let Some(runtime_status) = runtime_status {
                self.publish_results(&runtime_status).await;
            }
            tokio::select! {
                () = &mut relist => return,
                () = self.signals.sync.notified() => {}
            }
        }
    }

    /// Publishes the probe results without a sync.
    async fn publish_results(&self, runtime_status: &RuntimePodStatus) {
        let report = self.context.prober.as_ref().and_then(|prober| prober.pod_report(&self.names));
        // The only possible error is that of the runtime's name, and the next sync reports it.
        let _ = self.update_status(runtime_status, report.as_ref(), false).await;
    }

    /// Waits until the next sync.
    async fn wait(&mut self, delay: RequeueDelay) {
        let due = match delay {
            RequeueDelay::Short(pause) => return sleep(pause).await,
            RequeueDelay::Until(due) => due,
        };
        // A deadline that has passed needs no timer: the next sync that reaches the runtime applies
        // it.
        let ahead = self.remaining_deadline().filter(|left| !left.is_zero());
        let due = ahead.map_or(due, |left| due.min(Instant::now() + left));
        tokio::select! {
            () = sleep_until(due) => {}
            () = self.signals.sync.notified() => {}
            _ = self.pods.changed() => {}
            () = self.signals.terminate.cancelled() => {}
        }
    }

    /// Reads the runtime's state and the probe results, publishes the status, computes the pod
    /// actions and executes them. Probes see the started containers once the sync has ended; after
    /// a failed sync, which no relist of the pod follows, once the next one has published the
    /// status. Until then, `in_progress` is set.
    async fn sync(&self, in_progress: &mut Option<SyncInProgress>) -> Result<SyncResult, SyncError> {
        let runtime_status = Arc::new(self.context.pod_status(&self.pod).await?);
        self.lock().runtime_status = Some(runtime_status.clone());
        self.record_completed(&runtime_status);
        let report = self.context.prober.as_ref().and_then(|prober| prober.update_pod_status(&self.names));
        if self.killed_for_good(&runtime_status) {
            self.published.send_modify(|published| published.failure = Some(FailureCause::Killed));
        }
        if self.remaining_deadline().is_some_and(|left| left.is_zero()) {
            let (reason, message) = DEADLINE_EXCEEDED;
            self.record_event(None, Event::normal(reason, message));
            self.published.send_modify(|published| published.failure = Some(FailureCause::Deadline));
        }
        let status = self.update_status(&runtime_status, report.as_ref(), false).await?;
        *in_progress = None;
        if status.is_terminal() {
            return Ok(SyncResult::Terminal);
        }
        if self.is_paused() {
            return Ok(SyncResult::Retry(None));
        }
        self.check_network().await?;
        self.prune_exited(&runtime_status).await;
        if !self.pod.is_client_pod() {
            self.release_subpaths(&runtime_status).await;
            self.prepare_pod_dir(runtime_status.addresses()).await?;
        }
        let probe_result = |id: &str, kind| report.as_ref()?.container(id)?.probe(kind)?.result;
        let actions = compute_pod_actions(ActionInputs {
            pod: &self.pod,
            runtime_status: &runtime_status,
            probe_result: &probe_result,
            probe_spec: self.probe_spec(report.as_ref()),
            restart_pending: &|id| self.context.stores.probe_killed.has_pending_restart(id),
        });
        debug!(pod = self.pod.full_name(), ?actions, "sync");
        let has_failed = |instance: &&ContainerInstance| {
            ProbeType::KILLING
                .into_iter()
                .any(|kind| probe_result(&instance.id, kind) == Some(ProbeResult::Failure))
        };
        let probe_killed = &self.context.stores.probe_killed;
        let killed: Vec<&ContainerInstance> = runtime_status.live().filter(has_failed).collect();
        for instance in &killed {
            probe_killed.add(&instance.id);
        }
        if self.pod.is_client_pod() && !self.still_managed().await {
            return Ok(SyncResult::Changed);
        }
        *in_progress = self.context.prober.as_ref().map(|prober| prober.begin_sync(&self.names));
        let work = Box::pin(self.execute(actions, &runtime_status, report.as_ref()));
        let synced = self.run_publishing_status(&runtime_status, work).await;
        if matches!(synced, Ok(SyncResult::Changed | SyncResult::NoChange)) {
            *in_progress = None;
        }
        if matches!(synced, Err(_) | Ok(SyncResult::Retry(_))) {
            // As with the kubelet, the next sync knows only the exit code of a killed container.
            for instance in killed {
                probe_killed.set_restart_tried(&instance.id);
            }
        }
        // Reads the status without updating the PLEG cache, so that the next relist detects
        // containers that exited during the sync.
        if let Ok(SyncResult::Retry(_)) = synced
            && let Ok((runtime_status, _)) = self.context.runtime.pod_status(&self.pod).await
        {
            // Publishes the reasons why containers wait, because no other event may wake the worker
            // before the next attempt.
            self.publish_results(&runtime_status).await;
            self.lock().runtime_status = Some(Arc::new(runtime_status));
        }
        synced
    }

    /// Whether the worker starts and kills nothing.
    fn is_paused(&self) -> bool {
        let restart_is_off =
            || self.context.prober.as_ref().is_some_and(|prober| prober.mode() != EnforcementMode::Restart);
        self.context.stores.kubelet_presence.is_active() || self.pod.is_client_pod() && restart_is_off()
    }

    /// Runs `work`, which may take long. Changes of probe results are published meanwhile, as by
    /// the kubelet's status manager. A sync that is requested meanwhile follows when `work` has
    /// ended.
    async fn run_publishing_status<T>(
        &self,
        runtime_status: &RuntimePodStatus,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        let mut sync_requested = false;
        loop {
            tokio::select! {
                output = &mut work => {
                    if sync_requested {
                        self.signals.sync.notify_one();
                    }
                    return output;
                }
                () = self.signals.sync.notified() => {
                    sync_requested = true;
                    self.publish_results(runtime_status).await;
                }
            }
        }
    }

    /// Whether a container was killed because of a probe and will not be restarted.
    fn killed_for_good(&self, runtime_status: &RuntimePodStatus) -> bool {
        let mut ended = runtime_status.containers.iter().filter(|instance| {
            instance.state == InstanceState::Exited
                && self.context.stores.probe_killed.has(&instance.id)
                && runtime_status.latest(&instance.name).is_some_and(|newest| newest.id == instance.id)
        });
        ended.any(|instance| {
            let restart_pending = self.context.stores.probe_killed.has_pending_restart(&instance.id);
            self.pod.container(&instance.name).is_some_and(|container| {
                !should_restart_after_kill(&self.pod, container, instance, restart_pending)
            })
        })
    }

    /// Returns the time until the active deadline, if the pod has one.
    fn remaining_deadline(&self) -> Option<Duration> {
        let limit = Duration::from_secs(self.pod.active_deadline?.into());
        let ran = SystemTime::now().duration_since(self.published.borrow().started);
        Some(limit.saturating_sub(ran.unwrap_or_default()))
    }

    /// Computes and publishes the status of the pod.
    async fn update_status(
        &self,
        runtime_status: &RuntimePodStatus,
        report: Option<&PodReport>,
        is_terminal: bool,
    ) -> Result<PodStatus, Status> {
        let (before, started) = self.last_status();
        if self.rejection.is_some() {
            // The status of a rejected pod is final.
            return Ok(before.unwrap_or_default());
        }
        let runtime = self.context.runtime.name().await?;
        let is_past_deadline = self.published.borrow().failure == Some(FailureCause::Deadline);
        let state = self.lock();
        let inputs = StatusInputs {
            pod: &self.pod,
            node: &self.context.node,
            runtime_status,
            report,
            probe_spec: self.probe_spec(report),
            reasons: &state.reasons,
            before: before.as_ref(),
            is_past_deadline,
            is_terminal,
            runtime,
            started,
        };
        let new = status::status(&inputs, SystemTime::now());
        drop(state);
        let sandbox = runtime_status.sandbox().map(|sandbox| sandbox.id.to_string());
        let (pod, status) = (self.pod.clone(), new.clone());
        self.published.send_modify(|published| {
            (published.pod, published.sandbox) = (pod, sandbox);
            published.update(status, &runtime_status.containers);
        });
        Ok(new)
    }

    /// Returns the last published status and the start time of the pod.
    fn last_status(&self) -> (Option<PodStatus>, SystemTime) {
        let published = self.published.borrow();
        (published.status.clone(), published.started)
    }

    /// Returns the probe spec of the pod from all sources known so far; `None` without a prober.
    fn probe_spec<'a>(&'a self, report: Option<&'a PodReport>) -> Option<&'a PodSpec> {
        self.context.prober.as_ref().map(|_| report.map_or(&*self.pod.spec, |report| &report.spec))
    }

    fn lock(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pod_ip(&self) -> Option<String> {
        let published = self.published.borrow();
        published.status.as_ref()?.pod_ip.clone()
    }

    fn record_event(&self, container: Option<&Arc<ContainerRef>>, event: Event) {
        self.context.record_event(&self.names, container, event);
    }
}

/// Returns the identity of a pod that has no sandbox yet.
fn names(pod: &Pod) -> PodRef {
    let text = |text: &String| Some(text.clone());
    PodRef { id: None, namespace: text(&pod.namespace), name: text(&pod.name), uid: text(&pod.uid) }
}

#[cfg(test)]
mod backoff_tests;
