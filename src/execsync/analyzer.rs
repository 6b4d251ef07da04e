//! Connects the tracker and the watchdog with the sampler, the specs and the runtime.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::analysis::CallRecord;
use super::evidence::{SampleRequest, SampleResult, Sampler, keep_program};
use super::exec_instance::ClockReading;
use super::identity::ProbeMatch;
use super::in_flight::{CommandProgress, RequestDetails};
use super::init_pid::container_init_pid;
use super::metrics::ExecMetrics;
use super::slowness::SlownessConfig;
use super::tracker::{CallContext, Tracker};
use super::watchdog::{Stuck, Watchdog};
use crate::containerd::TimestampedEvent;
use crate::cri::MeteredRuntimeClient;
use crate::inventory::{Change, Inventory, Sandbox};
use crate::manifest::{ExecPurpose, KnownExec};
use crate::probe::{SpecResolver, annotation_problems};
use crate::tap::{DecodedCall, ExecCall, ExecRequest};

/// Delay after which the init pid of a container is requested again if the runtime did not report
/// it.
const PID_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Analyzes every ExecSync of the node.
#[derive(Debug)]
pub struct ExecAnalyzer {
    tracker: Tracker,
    watchdog: Watchdog,
    /// Whether commands are reduced to their programs.
    redact_commands: bool,
    metrics: ExecMetrics,
    specs: SpecResolver,
    /// Probes and hooks in the specs of containers in which a command was executed.
    known_execs: HashMap<Arc<str>, Arc<[KnownExec]>>,
    pid_lookups: HashMap<Arc<str>, PidLookup>,
    sampler: Sampler,
    client: MeteredRuntimeClient,
    /// Cloned for each task that sends a result.
    result_sender: mpsc::UnboundedSender<SampleResult>,
    results: mpsc::UnboundedReceiver<SampleResult>,
}

/// The state of the request for the init pid of a container.
#[derive(Debug)]
enum PidLookup {
    /// The request was sent; its result may have arrived.
    Requested,
    /// The runtime did not report a pid; the request is not repeated before this time.
    RetryAt(Instant),
}

/// A result that the analyzer has requested; pass it to [`ExecAnalyzer::handle`].
#[derive(Debug)]
pub struct SamplerReply(SampleResult);

impl ExecAnalyzer {
    /// Starts the sampler. `client` makes internal calls about containers.
    ///
    /// Returns an error if the sampler's thread cannot be started.
    pub fn start(
        config: SlownessConfig,
        specs: SpecResolver,
        client: MeteredRuntimeClient,
        metrics: ExecMetrics,
    ) -> io::Result<Self> {
        let (result_sender, results) = mpsc::unbounded_channel();
        Ok(Self {
            tracker: Tracker::new(config),
            watchdog: Watchdog::default(),
            redact_commands: config.redact_commands,
            metrics,
            specs,
            known_execs: HashMap::new(),
            pid_lookups: HashMap::new(),
            sampler: Sampler::start(result_sender.clone())?,
            client,
            result_sender,
            results,
        })
    }

    /// Replaces the specs of probes and hooks.
    pub fn set_specs(&mut self, specs: SpecResolver) {
        self.specs = specs;
        self.known_execs.clear();
    }

    /// Called when the request of an ExecSync was sent to the runtime.
    pub fn on_request(&mut self, inventory: &Inventory, request: ExecRequest) {
        let Some(id_prefix) = request.container.as_ref().and_then(|container| container.id.as_deref()) else {
            return;
        };
        let container = full_id(inventory, id_prefix);
        self.request_init_pid(inventory, &container, request.times.sent);
        let context = self.call_context(inventory, &container, &request.exec);
        self.tracker.on_request(&container, request, context);
        self.send_sample_requests();
    }

    /// Called when a call has ended.
    pub fn on_end(&mut self, inventory: &Inventory, mut decoded: Box<DecodedCall>, now: Instant) {
        let call = &mut decoded.call;
        let id_prefix = call.container.as_ref().and_then(|container| container.id.as_deref());
        if let (Some(exec), Some(id_prefix)) = (&call.exec, id_prefix) {
            let known = self.tracker.container_of(call.id);
            let container = known.cloned().unwrap_or_else(|| full_id(inventory, id_prefix));
            let context = self.call_context(inventory, &container, exec);
            self.tracker.on_end(&container, decoded, context, now);
            self.send_sample_requests();
            return;
        }
        let container = id_prefix.and_then(|id| inventory.container(id));
        let sandbox = call.pod.as_ref().and_then(|pod| pod.id.as_deref());
        let sandbox = sandbox.or_else(|| container?.sandbox.as_deref()).and_then(|id| inventory.sandbox(id));
        call.pod = sandbox.map(|sandbox| sandbox.pod.clone()).or(call.pod.take());
        call.container = container.map(|container| container.container_ref.clone()).or(call.container.take());
        let (trace, at) = (decoded.info.trace.clone(), decoded.info.since + decoded.call.duration);
        self.tracker.records.push(CallRecord::unanalyzed(decoded.call, trace, Some(at)));
    }

    /// Applies an event of containerd about an exec instance.
    pub fn on_task_event(&mut self, timestamped: &TimestampedEvent, now: Instant) {
        self.tracker.on_task_event(timestamped, ClockReading::new(now));
        self.send_sample_requests();
    }

    /// Called when the runtime is connected. `has_exec_events` is whether the runtime reports exec
    /// instances.
    pub fn events_available(&mut self, has_exec_events: bool, now: Instant) {
        self.tracker.events_available(has_exec_events, now);
        self.send_sample_requests();
    }

    /// Called when the runtime or its event stream is lost.
    pub fn events_interrupted(&mut self, now: Instant) {
        self.tracker.events_interrupted(now);
        self.send_sample_requests();
    }

    /// Called when probeshim does not subscribe to the events of the runtime.
    pub fn events_disabled(&mut self) {
        self.tracker.events_disabled();
    }

    /// Called when the inventory has changed.
    pub fn on_changes(&mut self, inventory: &Inventory, changes: &[Change], now: Instant) {
        self.metrics.inventory(inventory);
        for change in changes {
            if let Change::SandboxRemoved(sandbox) = change
                // The next sandbox of a pod may exist before the previous one is removed.
                && !inventory.sandboxes().any(|other| {
                    (&other.pod.namespace, &other.pod.name) == (&sandbox.pod.namespace, &sandbox.pod.name)
                })
                && let (Some(namespace), Some(name)) = (&sandbox.pod.namespace, &sandbox.pod.name)
            {
                self.metrics.pod_gone(namespace, name);
            }
            if let Change::ContainerExited(container) | Change::ContainerRemoved(container) = change {
                self.tracker.container_exited(&container.id, now);
                self.watchdog.container_gone(&container.id);
                self.known_execs.remove(&container.id);
                if self.pid_lookups.remove(&container.id).is_some() {
                    self.sampler.try_send(SampleRequest::ContainerGone { container: container.id.clone() });
                }
            }
        }
    }

    /// Returns the problems in a pod's annotations for probeshim.
    #[must_use]
    pub fn annotation_problems(&self, sandbox: &Sandbox) -> Vec<String> {
        annotation_problems(sandbox, self.redact_commands)
    }

    /// Waits for a result. Cancel safe.
    pub async fn recv(&mut self) -> SamplerReply {
        match self.results.recv().await {
            Some(result) => SamplerReply(result),
            None => std::future::pending().await,
        }
    }

    /// Handles a result.
    pub fn handle(&mut self, SamplerReply(result): SamplerReply, now: Instant) {
        match result {
            SampleResult::InitPid { container, pid } => self.on_init_pid(container, pid, now),
            SampleResult::Evidence { call, evidence } => self.tracker.on_evidence(call, *evidence, now),
            SampleResult::Cmdline { container, exec, args } => {
                self.tracker.on_cmdline(&container, &exec, args);
            }
            SampleResult::SessionProcesses { container, processes, zombies } => {
                self.watchdog.on_leftovers(&container, &processes, now);
                self.watchdog.on_zombies(&container, zombies, now);
            }
        }
        self.send_sample_requests();
    }

    /// Records calls whose deadline is over, and checks for stuck execs.
    pub fn tick(&mut self, now: Instant) {
        self.tracker.tick(now);
        self.watchdog.check(&self.tracker, now);
        self.metrics.stuck(self.watchdog.stuck());
        self.send_sample_requests();
    }

    /// Records all calls that have ended, without waiting for more events.
    pub fn flush(&mut self, now: Instant) {
        self.tracker.flush(now);
    }

    /// Returns the time of the next [`tick`](Self::tick), if it cannot wait for the next second.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        self.tracker.next_tick()
    }

    /// Removes and returns the records since the last call.
    pub fn take_records(&mut self) -> Vec<CallRecord> {
        for session in self.tracker.sessions.drain(..) {
            self.watchdog.watch(session);
        }
        let mut records = std::mem::take(&mut self.tracker.records);
        for record in &records {
            self.metrics.recorded(record);
        }
        if self.redact_commands {
            records = records.into_iter().map(CallRecord::redacted).collect();
        }
        records
    }

    /// Returns the ids of the ExecSyncs that have ended and are not recorded yet.
    #[must_use]
    pub fn unrecorded(&self) -> HashSet<u64> {
        self.tracker.unrecorded().collect()
    }

    /// Returns the ExecSyncs in flight, by id.
    #[must_use]
    pub fn in_flight(&self) -> HashMap<u64, RequestDetails> {
        let calls = self.tracker.containers().flat_map(|(_, execs)| execs.in_flight());
        let details = calls.map(|(call, instance)| {
            let CallContext { container, pod, probe_match } = call.context().clone();
            let exec = if self.redact_commands { Arc::new(call.exec.redacted()) } else { call.exec.clone() };
            let progress = instance.map(|instance| CommandProgress {
                pid: instance.pid,
                started: instance.started.map(|started| started.at),
                exited: instance.exited.map(|exited| exited.at),
                status: instance.status,
            });
            (call.id, RequestDetails { pod, container, exec: Some(exec), probe_match, progress, held: None })
        });
        details.collect()
    }

    /// Returns whether commands are shown without their arguments.
    pub fn redacts(&self) -> bool {
        self.redact_commands
    }

    /// Returns the failure threshold of the probe to which a call is attributed, if it is known. Of
    /// several probes with the same command, the first counts, as for the period.
    #[must_use]
    pub fn failure_threshold(&self, inventory: &Inventory, record: &CallRecord) -> Option<u32> {
        let ProbeMatch::Matched { uses, .. } = &record.analysis.as_ref()?.identity else { return None };
        let first = *uses.first()?;
        let thresholds = self.failure_thresholds(inventory, record);
        thresholds.into_iter().find(|(purpose, _)| *purpose == first).map(|(_, threshold)| threshold)
    }

    /// Returns the failure thresholds of the probes to which a call is attributed, as far as they
    /// are known.
    #[must_use]
    pub fn failure_thresholds(&self, inventory: &Inventory, record: &CallRecord) -> Vec<(ExecPurpose, u32)> {
        let identity = record.analysis.as_deref().map(|analysis| &analysis.identity);
        let Some(ProbeMatch::Matched { uses, .. }) = identity else { return Vec::new() };
        let find = |known_execs: &[KnownExec]| -> Vec<(ExecPurpose, u32)> {
            let used = known_execs.iter().filter(|known| uses.contains(&known.purpose));
            used.filter_map(|known| Some((known.purpose, known.failure_threshold?))).collect()
        };
        let id = record.call.container.as_ref().and_then(|container| container.id.as_deref());
        let Some(container) = id.and_then(|id| inventory.container(id)) else { return Vec::new() };
        match self.known_execs.get(&container.id) {
            Some(known_execs) => find(known_execs),
            // The container has exited.
            None => inventory
                .sandbox_of(container)
                .map(|sandbox| find(&self.specs.known_execs(sandbox, container)))
                .unwrap_or_default(),
        }
    }

    /// Returns the stuck execs.
    #[must_use]
    pub fn stuck(&self) -> Stuck {
        let mut stuck = self.watchdog.stuck().clone();
        if self.redact_commands {
            for stuck in stuck.values_mut() {
                keep_program(&mut stuck.command);
            }
        }
        stuck
    }

    fn send_sample_requests(&mut self) {
        for sample_request in
            self.tracker.sample_requests.drain(..).chain(self.watchdog.sample_requests.drain(..))
        {
            if !self.sampler.try_send(sample_request) {
                self.metrics.not_sampled();
            }
        }
        let (all, busiest) = self.tracker.in_flight_peaks();
        self.metrics.in_flight(all, busiest);
    }

    /// Returns the container and pod of a call, and the probe or hook to which specs attribute the
    /// call.
    fn call_context(&mut self, inventory: &Inventory, container: &Arc<str>, exec: &ExecCall) -> CallContext {
        let Some(known) = inventory.container(container) else { return CallContext::default() };
        let sandbox = inventory.sandbox_of(known);
        let probe_match = sandbox.map_or(ProbeMatch::Unknown, |sandbox| {
            let specs = &self.specs;
            let known_execs = self
                .known_execs
                .entry(container.clone())
                .or_insert_with(|| specs.known_execs(sandbox, known).into());
            if exec.truncated {
                ProbeMatch::Unknown
            } else {
                ProbeMatch::match_exec(known_execs, &exec.command, exec.timeout_seconds)
            }
        });
        let pod = sandbox.map(|sandbox| sandbox.pod.clone());
        CallContext { container: Some(known.container_ref.clone()), pod, probe_match }
    }

    /// Requests the init pid of a container once, and again after a delay if the runtime did not
    /// report it.
    fn request_init_pid(&mut self, inventory: &Inventory, container: &Arc<str>, now: Instant) {
        let is_due = match self.pid_lookups.get(container) {
            None => inventory.container(container).is_some(),
            Some(PidLookup::RetryAt(again)) => now >= *again,
            Some(PidLookup::Requested) => false,
        };
        if !is_due {
            return;
        }
        self.pid_lookups.insert(container.clone(), PidLookup::Requested);
        let (client, result_sender, container) =
            (self.client.clone(), self.result_sender.clone(), container.clone());
        tokio::spawn(async move {
            let pid = container_init_pid(client, &container).await;
            // The receiver is dropped when the program ends.
            let _ = result_sender.send(SampleResult::InitPid { container, pid });
        });
    }

    /// Handles the result of the request for an init pid.
    fn on_init_pid(&mut self, container: Arc<str>, pid: Option<i32>, now: Instant) {
        // The container may be gone.
        let Some(lookup) = self.pid_lookups.get_mut(&container) else { return };
        match pid {
            Some(pid) => {
                self.sampler.try_send(SampleRequest::InitPid { container, pid });
            }
            None => *lookup = PidLookup::RetryAt(now + PID_RETRY_INTERVAL),
        }
    }
}

/// Returns the full id of a container; calls may contain a prefix.
fn full_id(inventory: &Inventory, id_prefix: &str) -> Arc<str> {
    inventory.container(id_prefix).map_or_else(|| id_prefix.into(), |container| container.id.clone())
}
