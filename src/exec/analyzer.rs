//! The tracker with all that it is told by and asks.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::analysis::CallRecord;
use super::evidence::{SampleRequest, SampleResult, Sampler};
use super::exec_instance::ClockReading;
use super::identity::ProbeMatch;
use super::init_pid::container_init_pid;
use super::metrics::ExecMetrics;
use super::slowness::SlownessConfig;
use super::tracker::{CallContext, Tracker};
use super::watchdog::{Stuck, Watchdog};
use crate::containerd::TimestampedEvent;
use crate::cri::MeteredRuntimeClient;
use crate::probe::{KnownExec, SpecResolver, annotation_problems};
use crate::tap::{DecodedCall, ExecCall, ExecRequest};
use crate::world::{Change, Inventory, Sandbox};

/// How long after a container was not found on this host it is looked for again.
const PID_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Inspects every `ExecSync` of the node, and explains each.
#[derive(Debug)]
pub struct ExecAnalyzer {
    tracker: Tracker,
    watchdog: Watchdog,
    /// Whether of commands only the program is told.
    redact_commands: bool,
    metrics: ExecMetrics,
    specs: SpecResolver,
    /// What specs say of the containers in which something was executed.
    known_execs: HashMap<Arc<str>, Arc<[KnownExec]>>,
    pid_lookups: HashMap<Arc<str>, PidLookup>,
    sampler: Sampler,
    client: MeteredRuntimeClient,
    /// For those who answer.
    result_sender: mpsc::UnboundedSender<SampleResult>,
    results: mpsc::UnboundedReceiver<SampleResult>,
}

/// Whether it is known where a container runs.
#[derive(Debug)]
enum PidLookup {
    /// The runtime was asked; it may have told by now.
    Requested,
    /// It did not tell, and is asked again no earlier than then.
    RetryAt(Instant),
}

/// Something that the inspector had asked for; hand it to [`Inspector::heard`].
#[derive(Debug)]
pub struct SamplerReply(SampleResult);

impl ExecAnalyzer {
    /// Begins to inspect. `client` is for questions of our own about containers.
    pub fn start(
        settings: SlownessConfig,
        specs: SpecResolver,
        client: MeteredRuntimeClient,
        metrics: ExecMetrics,
    ) -> io::Result<Self> {
        let (result_sender, results) = mpsc::unbounded_channel();
        Ok(Self {
            tracker: Tracker::new(settings),
            watchdog: Watchdog::default(),
            redact_commands: settings.redact_commands,
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

    /// What is written of probes and hooks is different from now on.
    pub fn set_specs(&mut self, specs: SpecResolver) {
        self.specs = specs;
        self.known_execs.clear();
    }

    /// An `ExecSync` is on its way.
    pub fn on_request(&mut self, world: &Inventory, request: ExecRequest) {
        let Some(named) = request.container.as_ref().and_then(|container| container.id.as_deref()) else {
            return;
        };
        let container = full_id(world, named);
        self.request_init_pid(world, &container, request.sent.sent);
        let place = self.call_context(world, &container, &request.exec);
        self.tracker.on_request(&container, request, place);
        self.send_sample_requests();
    }

    /// A call has ended.
    pub fn on_end(&mut self, world: &Inventory, mut ended: Box<DecodedCall>, now: Instant) {
        let call = &mut ended.call;
        let named = call.container.as_ref().and_then(|container| container.id.as_deref());
        if let (Some(exec), Some(named)) = (&call.exec, named) {
            let known = self.tracker.container_of(call.id);
            let container = known.cloned().unwrap_or_else(|| full_id(world, named));
            let place = self.call_context(world, &container, exec);
            self.tracker.on_end(&container, ended, place, now);
            self.send_sample_requests();
            return;
        }
        let container = named.and_then(|id| world.container(id));
        let sandbox = call.pod.as_ref().and_then(|pod| pod.id.as_deref());
        let sandbox = sandbox.or_else(|| container?.sandbox.as_deref()).and_then(|id| world.sandbox(id));
        call.pod = sandbox.map(|sandbox| sandbox.pod.clone()).or(call.pod.take());
        call.container = container.map(|container| container.name.clone()).or(call.container.take());
        let (trace, at) = (ended.info.trace.clone(), ended.info.since + ended.call.duration);
        self.tracker.records.push(CallRecord::unanalyzed(ended.call, trace, Some(at)));
    }

    /// Something has become of what is executed.
    pub fn on_task_event(&mut self, stamped: &TimestampedEvent, now: Instant) {
        self.tracker.on_task_event(stamped, ClockReading::new(now));
        self.send_sample_requests();
    }

    /// The runtime is watched from now on, and tells of what it executes or does not.
    pub fn events_available(&mut self, tells_execs: bool, now: Instant) {
        self.tracker.events_available(tells_execs, now);
        self.send_sample_requests();
    }

    /// The runtime has gone, or its events have.
    pub fn events_interrupted(&mut self, now: Instant) {
        self.tracker.events_interrupted(now);
        self.send_sample_requests();
    }

    /// The runtime is not asked for its events: what it executes will not be known.
    pub fn events_disabled(&mut self) {
        self.tracker.events_disabled();
    }

    /// Something has become of the node.
    pub fn on_changes(&mut self, world: &Inventory, changes: &[Change], now: Instant) {
        self.metrics.world(world);
        for change in changes {
            if let Change::SandboxRemoved(sandbox) = change
                // The next sandbox of a pod may be there before the last has gone.
                && !world.sandboxes().any(|other| {
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

    /// What a pod's annotations for probeshim say that cannot be read.
    #[must_use]
    pub fn annotation_problems(&self, sandbox: &Sandbox) -> Vec<String> {
        annotation_problems(sandbox, self.redact_commands)
    }

    /// Waits for something that was asked for. Nothing is lost where it is cancelled.
    pub async fn recv(&mut self) -> SamplerReply {
        match self.results.recv().await {
            Some(answer) => SamplerReply(answer),
            None => std::future::pending().await,
        }
    }

    /// Takes what was asked for.
    pub fn handle(&mut self, SamplerReply(answer): SamplerReply, now: Instant) {
        match answer {
            SampleResult::InitPid { container, pid } => self.on_init_pid(container, pid, now),
            SampleResult::Evidence { call, evidence } => self.tracker.on_evidence(call, *evidence, now),
            SampleResult::Cmdline { container, exec, args } => {
                self.tracker.on_cmdline(&container, &exec, args)
            }
            SampleResult::SessionProcesses { container, processes } => {
                self.watchdog.on_leftovers(&container, &processes, now);
            }
        }
        self.send_sample_requests();
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Instant) {
        self.tracker.tick(now);
        self.watchdog.check(&self.tracker, now);
        self.metrics.stuck(self.watchdog.stuck());
        self.send_sample_requests();
    }

    /// Records everything that has ended as it is known now: nothing more will be heard of.
    pub fn flush(&mut self, now: Instant) {
        self.tracker.flush(now);
    }

    /// When something is due that cannot wait for the next second.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        self.tracker.next_tick()
    }

    /// What has been explained since it was last asked.
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

    /// What is stuck.
    #[must_use]
    pub fn stuck(&self) -> Stuck {
        let mut stuck = self.watchdog.stuck().clone();
        if self.redact_commands {
            for stuck in stuck.values_mut() {
                stuck.command.truncate(1);
                // Some programs write more than their name there.
                if let Some(program) = stuck.command.first_mut() {
                    program.truncate(program.find(char::is_whitespace).unwrap_or(program.len()));
                }
            }
        }
        stuck
    }

    fn send_sample_requests(&mut self) {
        for ask in self.tracker.sample_requests.drain(..).chain(self.watchdog.sample_requests.drain(..)) {
            if !self.sampler.try_send(ask) {
                self.metrics.not_sampled();
            }
        }
        let (all, busiest) = self.tracker.in_flight_peaks();
        self.metrics.in_flight(all, busiest);
    }

    /// Where a call executes, and what specs say of it.
    fn call_context(&mut self, world: &Inventory, container: &Arc<str>, exec: &ExecCall) -> CallContext {
        let Some(known) = world.container(container) else { return CallContext::default() };
        let sandbox = world.sandbox_of(known);
        let probe_match = sandbox.map_or(ProbeMatch::Unknown, |sandbox| {
            let specs = &self.specs;
            let uses = self
                .known_execs
                .entry(container.clone())
                .or_insert_with(|| specs.known_execs(sandbox, known).into());
            if exec.truncated {
                ProbeMatch::Unknown
            } else {
                ProbeMatch::match_exec(uses, &exec.command, exec.timeout_seconds)
            }
        });
        let pod = sandbox.map(|sandbox| sandbox.pod.clone());
        CallContext { container: Some(known.name.clone()), pod, probe_match }
    }

    /// Asks where a container runs, once; where that was not told, a while later again.
    fn request_init_pid(&mut self, world: &Inventory, container: &Arc<str>, now: Instant) {
        let is_due = match self.pid_lookups.get(container) {
            None => world.container(container).is_some(),
            Some(PidLookup::RetryAt(again)) => now >= *again,
            Some(PidLookup::Requested) => false,
        };
        if !is_due {
            return;
        }
        self.pid_lookups.insert(container.clone(), PidLookup::Requested);
        let (client, answer, container) =
            (self.client.clone(), self.result_sender.clone(), container.clone());
        tokio::spawn(async move {
            let pid = container_init_pid(client, &container).await;
            // Nobody listens once the program ends.
            let _ = answer.send(SampleResult::InitPid { container, pid });
        });
    }

    /// The runtime has told a container's first process, or has not.
    fn on_init_pid(&mut self, container: Arc<str>, pid: Option<i32>, now: Instant) {
        // It may have gone meanwhile.
        let Some(location) = self.pid_lookups.get_mut(&container) else { return };
        match pid {
            Some(pid) => {
                self.sampler.try_send(SampleRequest::InitPid { container, pid });
            }
            None => *location = PidLookup::RetryAt(now + PID_RETRY_INTERVAL),
        }
    }
}

/// The whole id of a container, of which calls may give the beginning.
fn full_id(world: &Inventory, named: &str) -> Arc<str> {
    world.container(named).map_or_else(|| named.into(), |container| container.id.clone())
}
