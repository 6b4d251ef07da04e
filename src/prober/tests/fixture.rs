//! A node whose sandboxes and containers change as a test demands.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::cri::v1::{self, ExecSyncRequest, ExecSyncResponse};
use crate::cri::{ContainerObservation, MethodName, SandboxObservation};
use crate::events::{Event, EventFilter, EventRecorder};
use crate::handler::exec_tests::answer;
use crate::inventory::{Inventory, Source};
use crate::manifest::ProbeType;
use crate::probe::SpecResolver;
use crate::prober::pod::ProbeWorker;
use crate::prober::*;
use crate::relay::{CallInfo, Peer};
use crate::tap::{Observation, StopRequest};

/// Time that is longer than any period in these tests.
pub(super) const SETTLED: Duration = Duration::from_secs(200);

/// A node whose sandboxes and containers change as a test demands.
pub(super) struct Node {
    pub(super) inventory: Arc<Inventory>,
    pub(super) prober: ProbeManager,
    recorded: Arc<RecordedEvents>,
    _dir: tempfile::TempDir,
}

/// All events, with the paused time at which each was recorded.
struct RecordedEvents(Mutex<FollowedEvents>);

struct FollowedEvents {
    receiver: broadcast::Receiver<Arc<Event>>,
    taken: Vec<(Instant, Arc<Event>)>,
}

impl RecordedEvents {
    /// Follows a recorder. Time is paused, so an event is taken at the time at which it was
    /// recorded.
    fn follow(events: &EventRecorder) -> Arc<Self> {
        let (_, receiver) = events.follow(&EventFilter::default());
        let mut wakeups = receiver.resubscribe();
        let followed = Arc::new(Self(Mutex::new(FollowedEvents { receiver, taken: Vec::new() })));
        let in_background = followed.clone();
        tokio::spawn(async move {
            while !matches!(wakeups.recv().await, Err(RecvError::Closed)) {
                in_background.take();
            }
        });
        followed
    }

    fn take(&self) -> Vec<(Instant, Arc<Event>)> {
        let mut followed = self.0.lock().unwrap();
        loop {
            match followed.receiver.try_recv() {
                Ok(event) => followed.taken.push((Instant::now(), event)),
                Err(TryRecvError::Lagged(count)) => panic!("{count} events were missed"),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return followed.taken.clone(),
            }
        }
    }
}

pub(super) type Answered = Result<ExecSyncResponse, Status>;

/// Returns the time that was so many seconds ago, in nanoseconds since 1970.
pub(super) fn ago(seconds: u64) -> i64 {
    let at = SystemTime::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    i64::try_from(at.duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

pub(super) fn succeed() -> Answered {
    answer(0, "", "")
}

pub(super) fn fail() -> Answered {
    answer(1, "", "")
}

impl Node {
    /// Returns a node with manifests of these pods, which have different names. `play` answers
    /// commands.
    pub(super) fn new(
        pods: &[Value],
        play: impl Fn(&ExecSyncRequest) -> Answered + Send + Sync + 'static,
    ) -> Self {
        Self::slow(pods, move |request| (Duration::ZERO, play(request)))
    }

    /// Returns a node whose commands take time.
    pub(super) fn slow(
        pods: &[Value],
        play: impl Fn(&ExecSyncRequest) -> (Duration, Answered) + Send + Sync + 'static,
    ) -> Self {
        let dry_run = EnforcementSettings { mode: EnforcementMode::DryRun, ..EnforcementSettings::default() };
        Self::enforcing(dry_run, pods, Executor::fake(play))
    }

    /// Returns a node whose prober may kill containers.
    pub(super) fn enforcing(enforcement: EnforcementSettings, pods: &[Value], executor: Executor) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (count, pod) in pods.iter().enumerate() {
            std::fs::write(dir.path().join(format!("{count}.json")), pod.to_string()).unwrap();
        }
        let specs = SpecResolver::read(&[dir.path()]).unwrap();
        let events = Arc::new(EventRecorder::default());
        let recorded = RecordedEvents::follow(&events);
        let mode =
            if enforcement.mode == EnforcementMode::Off { EnforcementMode::DryRun } else { enforcement.mode };
        let parts = ProberConfig {
            specs,
            metrics: ProberMetrics::default(),
            inspect_requests: mpsc::channel(1).0,
            skip_start_jitter: false,
            attempts: AttemptReporter::default(),
            enforcement: EnforcementSettings { mode, ..enforcement },
        };
        let prober = ProbeManager::start(parts, executor, events, Handle::current());
        Self { inventory: Arc::default(), prober, recorded, _dir: dir }
    }

    /// Returns a node whose prober is older than any period, so that workers start without jitter.
    pub(super) async fn settled(
        pods: &[Value],
        play: impl Fn(&ExecSyncRequest) -> Answered + Send + Sync + 'static,
    ) -> Self {
        let node = Self::new(pods, play);
        node.prober.mark_listed();
        sleep(SETTLED).await;
        node
    }

    pub(super) fn observe(&mut self, fact: Observation) {
        let now = Instant::now();
        let changes = self.inventory.fold(Source::List, now, now, vec![fact]);
        self.prober.changed(&self.inventory, &changes);
    }

    /// Adds a pod with a running sandbox.
    pub(super) fn pod(&mut self, name: &str) {
        self.sandbox(name, &format!("s-{name}"), 0, true);
    }

    /// Adds or updates a sandbox of a pod.
    pub(super) fn sandbox(&mut self, name: &str, id: &str, attempt: u32, is_ready: bool) {
        let metadata =
            v1::PodSandboxMetadata { name: name.into(), uid: name.into(), namespace: "it".into(), attempt };
        self.observe(Observation::Sandbox(SandboxObservation {
            id: id.to_owned(),
            metadata: Some(metadata),
            is_ready: Some(is_ready),
            addresses: Some(vec!["127.0.0.1".into()]),
            ..SandboxObservation::default()
        }));
    }

    /// Adds or updates a container of a pod. `web/main#0` is the first container of its name.
    pub(super) fn container(
        &mut self,
        name: &str,
        state: v1::ContainerState,
        started_at: i64,
        exit: Option<i32>,
    ) {
        let (pod, rest) = name.split_once('/').unwrap();
        let (container, attempt) = rest.split_once('#').unwrap_or((rest, "0"));
        let attempt = attempt.parse().unwrap();
        self.observe(Observation::Container(ContainerObservation {
            id: format!("{pod}/{container}#{attempt}"),
            sandbox: Some(format!("s-{pod}")),
            metadata: Some(v1::ContainerMetadata { name: container.into(), attempt }),
            state: Some(state),
            created_at: Some(1 + i64::from(attempt)),
            started_at: Some(started_at),
            exit: exit.map(|code| (code, String::new())),
            ..ContainerObservation::default()
        }));
    }

    /// Adds a running container.
    pub(super) fn run(&mut self, name: &str) {
        self.container(name, v1::ContainerState::ContainerRunning, ago(0), None);
    }

    pub(super) fn exit(&mut self, name: &str, code: i32) {
        self.container(name, v1::ContainerState::ContainerExited, ago(0), Some(code));
    }

    pub(super) fn report(&self, pod: &str) -> PodReport {
        let is_it = |report: &PodReport| report.names.name.as_deref() == Some(pod);
        self.prober.report().into_iter().find(is_it).unwrap_or_else(|| panic!("{pod} is not probed"))
    }

    pub(super) fn container_of(&self, name: &str) -> ContainerReport {
        let (pod, container) = name.split_once('/').unwrap();
        let report = self.report(pod);
        let is_it = |it: &ContainerReport| it.names.name.as_deref() == Some(container);
        report.containers.into_iter().find(is_it).unwrap()
    }

    pub(super) fn probe(&self, name: &str, probe_type: ProbeType) -> Option<ProbeReport> {
        self.container_of(name).probes.into_iter().find(|probe| probe.probe_type == probe_type)
    }

    pub(super) fn result(&self, name: &str, probe_type: ProbeType) -> Option<ProbeResult> {
        self.probe(name, probe_type).and_then(|probe| probe.result)
    }

    /// Returns the pods, containers and types of all probe workers.
    pub(super) fn workers(&self) -> Vec<String> {
        let mut workers = Vec::new();
        for pod in self.prober.shared.pods() {
            let inner = pod.lock();
            let name = inner.names.name.clone().unwrap();
            let worker = |worker: &ProbeWorker| {
                format!("{name}/{} {}", worker.container, worker.state.probe_type.name())
            };
            workers.extend(inner.workers.iter().map(worker));
        }
        workers.sort();
        workers
    }

    /// Returns the messages of all events that are about no pod.
    pub(super) fn global_events(&self) -> Vec<String> {
        let events = self.recorded.take().into_iter().filter(|(_, event)| event.pod.is_none());
        events.map(|(_, event)| event.message.clone()).collect()
    }

    /// Returns the reasons and messages of the events of containers since a time, with the seconds
    /// after it.
    pub(super) fn events_since(&self, begin: Instant) -> Vec<(f64, &'static str, String)> {
        let seconds = |at: Instant| (at.saturating_duration_since(begin).as_secs_f64() * 10.0).round() / 10.0;
        let recorded = self.recorded.take().into_iter();
        let recent = recorded.filter(|(at, event)| *at >= begin && event.container.is_some());
        recent.map(|(at, event)| (seconds(at), event.reason, event.message.clone())).collect()
    }
}

/// Returns the manifest of a pod. Each container has further fields in addition to its name.
pub(super) fn pod(name: &str, policy: &str, containers: &[(&str, Value)]) -> Value {
    let containers: Vec<Value> = containers.iter().map(|(name, more)| merged(name, more)).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "it"},
        "spec": {"restartPolicy": policy, "containers": containers},
    })
}

pub(super) fn merged(name: &str, more: &Value) -> Value {
    let mut container = json!({"name": name});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    container
}

/// Returns a probe whose command is the name of its type.
#[expect(clippy::needless_pass_by_value, reason = "it is written where it is used")]
pub(super) fn probe(probe_type: ProbeType, more: Value) -> (String, Value) {
    let mut probe =
        json!({"exec": {"command": [probe_type.name()]}, "periodSeconds": 1, "failureThreshold": 1});
    probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (probe_type.field().to_owned(), probe)
}

pub(super) fn probes(probes: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(probes.into_iter().collect())
}

/// Waits, so that everything that is scheduled within this time happens.
pub(super) async fn after(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds)).await;
}

pub(super) const STARTUP: ProbeType = ProbeType::Startup;
pub(super) const READINESS: ProbeType = ProbeType::Readiness;
pub(super) const LIVENESS: ProbeType = ProbeType::Liveness;

impl Node {
    /// Starts a StopContainer of a kubelet, which is in flight until the returned call is dropped.
    pub(super) fn stop(&self, container: &str) -> Arc<CallInfo> {
        self.call_that_stops("StopContainer", None, Some(container.to_owned()))
    }

    /// Starts a `StopPodSandbox` of a kubelet, which is in flight until the returned call is
    /// dropped.
    pub(super) fn stop_pod(&self, pod: &str) -> Arc<CallInfo> {
        self.call_that_stops("StopPodSandbox", Some(format!("s-{pod}")), None)
    }

    fn call_that_stops(
        &self,
        method: &str,
        sandbox: Option<String>,
        container: Option<String>,
    ) -> Arc<CallInfo> {
        let head = kubelet_call(method);
        self.prober.on_stop_requested(&StopRequest {
            info: Arc::downgrade(&head),
            pid: None,
            sandbox,
            container,
            is_removal: false,
        });
        head
    }

    /// Adds a pod with one running container, and annotations of both.
    pub(super) fn annotated(&mut self, name: &str, of_pod: &[(&str, &str)], of_container: &[(&str, &str)]) {
        let texts = |texts: &[(&str, &str)]| {
            Some(texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect())
        };
        self.pod(name);
        self.observe(Observation::Sandbox(SandboxObservation {
            id: format!("s-{name}"),
            annotations: texts(of_pod),
            ..SandboxObservation::default()
        }));
        self.observe(Observation::Container(ContainerObservation {
            id: format!("{name}/main#0"),
            sandbox: Some(format!("s-{name}")),
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            annotations: texts(of_container),
            ..ContainerObservation::default()
        }));
        self.run(&format!("{name}/main"));
    }

    /// Adds a pod with one running container.
    pub(super) fn run_pod(&mut self, name: &str) {
        self.pod(name);
        self.run(&format!("{name}/main"));
    }
}

/// Returns a call of a kubelet.
pub(super) fn kubelet_call(method: &str) -> Arc<CallInfo> {
    Arc::new(CallInfo {
        id: 1,
        peer: Some(Arc::new(Peer { uid: 0, pid: None, program: Some("kubelet".to_owned()) })),
        method: MethodName::of_path(&format!("/runtime.v1.RuntimeService/{method}")),
        start: SystemTime::now(),
        since: Instant::now(),
        trace: None,
        timeout: None,
    })
}
