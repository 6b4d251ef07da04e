//! One pod that is played: a worker that looks what is so, decides what is to be done, does it, and begins again (as the kubelet's worker
//! of a pod).

mod actions;
mod image;
mod kill;
mod start;
mod status;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{debug, warn};

use super::configs::{self, Facts};
use super::host::Folder;
use super::means::{Means, PATIENCE, unless_gone, within};
use super::seen::{Instance, Seen, State};
use super::spec::Pod;
use super::standing::{Loss, Standing};
use super::v1::PodStatus;
use crate::cri::v1::{PodSandboxConfig, RemovePodSandboxRequest, RunPodSandboxRequest};
use crate::probe::{ProbeType, RestartPolicy, Role};
use crate::prober::{PodReport, ProbeResult};
use crate::tap;
use crate::terminal::harmless;
use crate::world::Sandbox;

use actions::{Actions, View, compute};
use kill::Reason;
use start::{Place, StartError};
use status::{Basis, Reasons, status};

/// When a pod is looked at again though nothing has happened, and by how much of it later at most.
const RESYNC: Duration = Duration::from_secs(60);
const SPREAD: f64 = 0.5;

/// When it is tried again where something has failed.
const RETRY: Duration = Duration::from_secs(10);

/// What is said of a pod that has run for too long.
const DEADLINE: (&str, &str) =
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");

/// How long the runtime may take to remove a pod that is to be gone at once.
const HURRY: Duration = Duration::from_secs(20);

/// The shortest grace period of a pod that is deleted, in seconds: its hooks run in any case.
const LEAST_AT_END: u32 = 1;

/// Where the end of a pod fails.
const RETRY_END: Duration = Duration::from_secs(1);

/// What tells a worker to do something.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Something has happened.
    pub(super) wake: Notify,
    /// The pod is to end, and be removed.
    pub(super) end: CancellationToken,
    /// And that at once.
    pub(super) hurry: CancellationToken,
}

/// Plays one pod.
#[derive(Debug)]
pub(super) struct Worker {
    means: Arc<Means>,
    pod: Arc<Pod>,
    /// What it is to be from now on.
    pods: watch::Receiver<Arc<Pod>>,
    names: Arc<tap::Pod>,
    folder: Folder,
    signals: Arc<Signals>,
    standing: watch::Sender<Standing>,
    started: SystemTime,
    begun: Instant,
    memory: Mutex<Memory>,
}

/// What is remembered from one sync to the next.
#[derive(Debug, Default)]
struct Memory {
    /// Why containers have not been started.
    reasons: Reasons,
    /// Whether all containers are being removed to start again, where that has ever been so.
    is_resetting: Option<bool>,
}

/// What a sync has come to.
enum Synced {
    /// Something was done: it is looked at again at once.
    Done,
    /// There was nothing to do.
    Idle,
    /// It has failed, and is tried again no earlier than this.
    Failed(Option<SystemTime>),
    /// The pod has come to its end.
    Over,
}

/// Why a sync was not done.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    /// The runtime did not do something.
    #[error("{}", harmless(.0.message()))]
    Runtime(#[from] Status),
    /// A volume is not to be had.
    #[error("{0}")]
    Volumes(String),
}

impl Worker {
    pub(super) fn new(
        means: Arc<Means>,
        pods: watch::Receiver<Arc<Pod>>,
        signals: Arc<Signals>,
        standing: watch::Sender<Standing>,
    ) -> Self {
        let pod = pods.borrow().clone();
        let folder = Folder::of(&pod, &means.node.pods);
        let names = Arc::new(names(&pod));
        Self {
            means,
            pod,
            pods,
            names,
            folder,
            signals,
            standing,
            started: SystemTime::now(),
            begun: Instant::now(),
            memory: Mutex::default(),
        }
    }

    /// Plays the pod until it is told to end, and leaves nothing of it. Tells whether that was so.
    pub(super) async fn run(mut self) -> bool {
        let signals = self.signals.clone();
        if let Some(prober) = &self.means.prober {
            // Its workers begin before there is anything to probe.
            let text = |texts: &super::spec::Texts| texts.iter().collect();
            let (labels, annotations) = (text(&self.pod.labels), text(&self.pod.annotations));
            prober.expect(Sandbox::awaited((*self.names).clone(), labels, annotations, Instant::now()));
        }
        tokio::select! {
            () = self.live() => {}
            () = signals.end.cancelled() => {}
        }
        self.end().await;
        signals.end.cancelled().await;
        self.clean().await
    }

    /// Syncs again and again, until the pod has come to its end.
    async fn live(&mut self) {
        loop {
            if self.pods.has_changed().unwrap_or(false) {
                self.pod = self.pods.borrow_and_update().clone();
            }
            let wait = match self.sync().await {
                Ok(Synced::Over) => return,
                Ok(Synced::Done) => continue,
                Ok(Synced::Idle) => RESYNC,
                Ok(Synced::Failed(until)) => {
                    let left = until.map(|until| until.duration_since(SystemTime::now()).unwrap_or_default());
                    left.unwrap_or(RETRY).min(RESYNC)
                }
                Err(error) => {
                    warn!(pod = self.pod.full_name(), "a pod was not synced: {error}");
                    RETRY
                }
            };
            let due = Instant::now() + wait.mul_f64(1.0 + SPREAD * fastrand::f64());
            let due = self.deadline().map_or(due, |deadline| due.min(deadline));
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.signals.wake.notified() => {}
                _ = self.pods.changed() => {}
            }
        }
    }

    /// Looks what is so, and does what is to be done.
    async fn sync(&self) -> Result<Synced, SyncError> {
        let seen = self.means.inspect(&self.pod.uid).await?;
        let report = self.means.prober.as_ref().and_then(|prober| prober.look(&self.names));
        let status = self.publish(&seen, report.as_ref(), false).await?;
        if status.is_terminal() {
            return Ok(Synced::Over);
        }
        if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            let (reason, message) = DEADLINE;
            self.tell(None, (reason, false), message.to_owned());
            self.standing.send_modify(|standing| standing.loss = Some(Loss::Deadline));
            return Ok(Synced::Over);
        }
        if self.means.is_held() {
            let message =
                "A kubelet uses the runtime: nothing is started or ended until it has been gone for a minute";
            self.tell(None, ("PlayHeld", true), message.to_owned());
            return Ok(Synced::Failed(None));
        }
        self.prune(&seen).await;
        self.prepare(seen.addresses()).await?;
        let verdicts = |id: &str, kind| report.as_ref()?.container(id)?.probe(kind)?.result;
        let actions = compute(View {
            pod: &self.pod,
            seen: &seen,
            verdicts: &verdicts,
            is_probed: self.means.prober.is_some(),
        });
        debug!(pod = self.pod.full_name(), ?actions, "sync");
        if loses(&self.pod, &seen, &verdicts) {
            self.standing.send_modify(|standing| standing.loss = Some(Loss::Killed));
        }
        self.attended(&seen, Box::pin(self.act(actions, &seen, report.as_ref()))).await
    }

    /// Does something that may take long. What probes say meanwhile is told at once, though nothing else is looked at (as the kubelet's status
    /// manager); it is looked at once this is done.
    async fn attended<T>(&self, seen: &Seen, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut is_woken = false;
        loop {
            tokio::select! {
                done = &mut work => {
                    if is_woken {
                        self.signals.wake.notify_one();
                    }
                    return done;
                }
                () = self.signals.wake.notified() => {
                    is_woken = true;
                    let report = self.means.prober.as_ref().and_then(|prober| prober.report_of(&self.names));
                    // It was asked what the runtime calls itself before.
                    let _ = self.publish(seen, report.as_ref(), false).await;
                }
            }
        }
    }

    async fn act(
        &self,
        actions: Actions,
        seen: &Seen,
        report: Option<&PodReport>,
    ) -> Result<Synced, SyncError> {
        let mut is_done = false;
        if !actions.resets.is_empty() {
            self.lock().is_resetting = Some(true);
            self.publish(seen, report, false).await?;
            for doomed in &actions.resets {
                if seen.alive().any(|instance| instance.id == doomed.id) {
                    self.kill_one(doomed, seen, report, Reason::Reset).await?;
                }
                self.remove(&doomed.id).await?;
            }
            return Ok(Synced::Done);
        }
        if actions.kills_pod {
            if actions.creates_sandbox.is_some() && actions.sandbox.is_some() {
                let message = "Pod sandbox changed, it will be killed and re-created.";
                self.tell(None, ("SandboxChanged", false), message.to_owned());
            }
            is_done = seen.alive().next().is_some() || seen.sandboxes.iter().any(|it| it.is_ready);
            let killed = self.kill_all(seen, 0).await;
            killed.inspect_err(|status| {
                let message = format!("error killing pod: {}", harmless(status.message()));
                self.tell(None, ("FailedKillPod", true), message);
            })?;
            if actions.creates_sandbox.is_some() {
                // Those of the last sandbox would tell that the new one is initialised.
                for instance in seen.containers.iter().filter(|it| self.is_init(it)) {
                    self.remove(&instance.id).await?;
                }
            }
        }
        for doomed in &actions.kills {
            let reason = doomed.probe.map_or(Reason::Other, Reason::Probe);
            self.kill_one(doomed, seen, report, reason).await?;
            is_done = true;
        }
        if actions.starts_init.is_empty() && actions.starts.is_empty() && actions.creates_sandbox.is_none() {
            return Ok(if is_done { Synced::Done } else { Synced::Idle });
        }
        let config = self.sandbox_config(actions.creates_sandbox, seen);
        let (sandbox, addresses) = match actions.creates_sandbox {
            Some(_) => self.run_sandbox(&config).await?,
            None => (actions.sandbox.unwrap_or_else(|| "".into()), seen.addresses().to_vec()),
        };
        if addresses.is_empty() && !self.pod.host.network {
            // Another one is made, as by the kubelet, once it has been looked at again.
            return Ok(Synced::Failed(Some(SystemTime::now() + RETRY_END)));
        }
        let place = Place { sandbox: &sandbox, config: &config, addresses: &addresses, seen };
        let mut failures: Vec<StartError> = Vec::new();
        for name in actions.starts_init.iter().chain(&actions.starts) {
            let Some(container) = self.pod.container(name).cloned() else { continue };
            match self.start(&container, place).await {
                Ok(()) => drop(self.lock().reasons.remove(name)),
                Err(error) => {
                    let reason = (error.reason.to_owned(), error.message.clone());
                    self.lock().reasons.insert(name.clone(), reason);
                    failures.push(error);
                    // What comes after it waits for it.
                    if container.role == Role::Init {
                        break;
                    }
                }
            }
        }
        if failures.is_empty() {
            let mut memory = self.lock();
            memory.is_resetting = memory.is_resetting.map(|_| false);
            return Ok(Synced::Done);
        }
        Ok(Synced::Failed(failures.iter().filter_map(|failure| failure.until).min()))
    }

    fn sandbox_config(&self, creates: Option<u32>, seen: &Seen) -> PodSandboxConfig {
        let attempt = creates.or(seen.sandbox().map(|sandbox| sandbox.attempt)).unwrap_or(0);
        let seen_at = jiff::Timestamp::try_from(self.started).map(|it| it.to_string()).unwrap_or_default();
        configs::sandbox(&self.pod, &self.means.node, attempt, &seen_at)
    }

    /// Makes a sandbox. Returns its id and its addresses.
    async fn run_sandbox(&self, config: &PodSandboxConfig) -> Result<(Arc<str>, Vec<String>), SyncError> {
        let failed = |status: &Status| {
            let message = format!("Failed to create pod sandbox: {}", harmless(status.message()));
            self.tell(None, ("FailedCreatePodSandBox", true), message);
        };
        let logs = config.log_directory.clone();
        let made = std::fs::create_dir_all(&logs);
        made.map_err(|error| SyncError::Volumes(format!("{logs}: {error}")))?;
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: self.pod.runtime_handler.clone(),
        };
        let run = within(PATIENCE * 2, self.means.acts.clone().run_pod_sandbox(request)).await;
        let id: Arc<str> = run.inspect_err(failed)?.pod_sandbox_id.into();
        let seen = self.means.inspect(&self.pod.uid).await?;
        let sandbox = seen.sandboxes.iter().find(|sandbox| sandbox.id == id);
        Ok((id, sandbox.map(|sandbox| sandbox.addresses.clone()).unwrap_or_default()))
    }

    /// Keeps of each container the newest, and the newest that has exited.
    async fn prune(&self, seen: &Seen) {
        let is_old = |instance: &&Instance| {
            let newest = match instance.state {
                State::Exited => seen.newest_exited(&instance.name),
                State::Created => seen.newest(&instance.name),
                State::Running | State::Unknown => return false,
            };
            newest.is_some_and(|newest| newest.id != instance.id)
        };
        for instance in seen.containers.iter().filter(is_old) {
            if let Err(status) = self.remove(&instance.id).await {
                debug!(container = %instance.id, "a dead container was not removed: {}", status.message());
            }
        }
    }

    fn is_init(&self, instance: &Instance) -> bool {
        self.pod.init_containers().any(|container| container.name == instance.name)
    }

    /// When it will have run for too long.
    fn deadline(&self) -> Option<Instant> {
        let limit = Duration::from_secs(self.pod.active_deadline?.into());
        Some(self.begun + limit)
    }

    /// Makes the pod's files.
    async fn prepare(&self, addresses: &[String]) -> Result<(), SyncError> {
        let (folder, pod, means) = (self.folder.clone(), self.pod.clone(), self.means.clone());
        let addresses = addresses.to_vec();
        let prepared = spawn_blocking(move || {
            folder.prepare(&Facts { pod: &pod, node: &means.node, addresses: &addresses })
        });
        let prepared = match prepared.await {
            Ok(prepared) => prepared.map_err(|error| error.to_string()),
            Err(_) => Err("a fault of probeshim's own".to_owned()),
        };
        prepared.map_err(|reason| {
            self.tell(None, ("FailedMount", true), format!("MountVolume.SetUp failed: {reason}"));
            SyncError::Volumes(reason)
        })
    }

    /// Ends everything of the pod.
    async fn end(&self) {
        if let Some(prober) = &self.means.prober {
            prober.begin_end(&self.names);
        }
        self.standing.send_modify(|standing| standing.is_ending = true);
        let hurry = self.signals.hurry.clone();
        loop {
            let ended = tokio::select! {
                ended = self.try_to_end() => ended,
                () = hurry.cancelled() => return,
            };
            let Err(error) = ended else { return };
            warn!(pod = self.pod.full_name(), "a pod was not ended: {error}");
            self.tell(None, ("FailedKillPod", true), format!("error killing pod: {error}"));
            tokio::select! {
                () = sleep(RETRY_END) => {}
                () = hurry.cancelled() => return,
            }
        }
    }

    async fn try_to_end(&self) -> Result<(), SyncError> {
        let seen = self.means.inspect(&self.pod.uid).await?;
        self.attended(&seen, self.kill_all(&seen, LEAST_AT_END)).await?;
        let seen = self.means.inspect(&self.pod.uid).await?;
        let report = self.means.prober.as_ref().and_then(|prober| prober.look(&self.names));
        self.publish(&seen, report.as_ref(), true).await?;
        if let Some(prober) = &self.means.prober {
            prober.forget(&self.names);
        }
        Ok(())
    }

    /// Removes everything of the pod. Tells whether it is gone; where that is to be quick, it is tried once more.
    async fn clean(&self) -> bool {
        let patient = async {
            while let Err(status) = self.try_to_clean().await {
                warn!(pod = self.pod.full_name(), "a pod was not removed: {}", harmless(status.message()));
                sleep(RETRY_END).await;
            }
        };
        let is_gone = tokio::select! {
            () = patient => true,
            () = self.signals.hurry.cancelled() => {
                matches!(timeout(HURRY, self.try_to_clean()).await, Ok(Ok(())))
            }
        };
        if let Some(prober) = &self.means.prober {
            prober.forget(&self.names);
        }
        self.means.records.forget(&self.pod.uid);
        let folder = self.folder.clone();
        let removed = spawn_blocking(move || folder.remove()).await;
        if let Ok(Err(error)) = removed {
            warn!(pod = self.pod.full_name(), "the files of a pod were not removed: {error}");
        }
        if !self.means.node.keeps_logs {
            let _ = std::fs::remove_dir_all(configs::log_folder(&self.pod, &self.means.node.logs));
        }
        is_gone
    }

    /// Until nothing of it is seen any more: what was being made when it was told to end may come later.
    async fn try_to_clean(&self) -> Result<(), Status> {
        loop {
            let seen = self.means.inspect(&self.pod.uid).await?;
            if seen.containers.is_empty() && seen.sandboxes.is_empty() {
                return Ok(());
            }
            self.remove_all(&seen).await?;
        }
    }

    async fn remove_all(&self, seen: &Seen) -> Result<(), Status> {
        for instance in &seen.containers {
            self.remove(&instance.id).await?;
        }
        for sandbox in &seen.sandboxes {
            let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.id.to_string() };
            unless_gone(within(PATIENCE, self.means.acts.clone().remove_pod_sandbox(request)).await)?;
        }
        Ok(())
    }

    /// Tells how the pod is.
    async fn publish(
        &self,
        seen: &Seen,
        report: Option<&PodReport>,
        is_terminal: bool,
    ) -> Result<PodStatus, Status> {
        let runtime = self.means.runtime_name().await?;
        let before = self.standing.borrow().status.clone();
        let memory = self.lock();
        let basis = Basis {
            pod: &self.pod,
            node: &self.means.node,
            seen,
            report,
            is_probed: self.means.prober.is_some(),
            reasons: &memory.reasons,
            before: before.as_ref(),
            is_terminal,
            is_resetting: memory.is_resetting,
            runtime,
            started: self.started,
        };
        let mut new = status(&basis, SystemTime::now());
        drop(memory);
        if self.standing.borrow().loss == Some(Loss::Deadline) && is_terminal {
            let (reason, message) = DEADLINE;
            new = PodStatus { phase: "Failed", reason: reason.into(), message: message.into(), ..new };
        }
        let sandbox = seen.sandbox().map(|sandbox| sandbox.id.to_string());
        let (pod, started, told) = (self.pod.clone(), self.started, new.clone());
        self.standing.send_modify(|standing| {
            (standing.pod, standing.started) = (pod, started);
            standing.sandbox = sandbox;
            standing.take(told);
        });
        Ok(new)
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> Option<String> {
        let standing = self.standing.borrow();
        standing.status.as_ref().map(|status| status.pod_ip.clone()).filter(|address| !address.is_empty())
    }

    fn tell(&self, container: Option<&Arc<tap::Container>>, what: (&'static str, bool), message: String) {
        self.means.tell(&self.names, container, what, message);
    }
}

/// Whether a probe of a container has failed that is not started again.
fn loses(pod: &Pod, seen: &Seen, verdicts: &actions::Verdicts<'_>) -> bool {
    let is_lost = |container: &&Arc<super::spec::Container>| {
        let policy = container.spec.restart_policy.unwrap_or(pod.restart_policy());
        let running = seen.newest(&container.name).filter(|instance| instance.state == State::Running);
        let failed = |id: &str| {
            ProbeType::ENDING.into_iter().any(|kind| verdicts(id, kind) == Some(ProbeResult::Failure))
        };
        policy == RestartPolicy::Never && running.is_some_and(|instance| failed(&instance.id))
    };
    pod.regular_containers().any(|container| is_lost(&container))
}

/// What a pod is called before it has a sandbox.
fn names(pod: &Pod) -> tap::Pod {
    let text = |text: &String| Some(text.clone());
    tap::Pod { id: None, namespace: text(&pod.namespace), name: text(&pod.name), uid: text(&pod.uid) }
}
