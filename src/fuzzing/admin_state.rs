//! The state behind the API: a node with a pod, and recorded calls.

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admin::{Admin, ApiMetrics, ApiState, ServerInfo};
use crate::capture::CaptureHub;
use crate::cri::{MeteredChannel, v1};
use crate::engine::InFlightReader;
use crate::events::EventRecorder;
use crate::execsync::CallRecord;
use crate::history::recorder::{Timeline, TimelineSources};
use crate::history::timeline::NodeFacts;
use crate::history::{CallHistory, Limits, json};
use crate::inventory::{Inventory, Source};
use crate::policy::{KnownExecs, NodeView, Policies};
use crate::probe::{NameSources, NameView, SpecResolver};
use crate::prober::{AttemptReporter, EnforcementMode};
use crate::relay::CallIds;
use crate::socket::SocketPath;
use crate::tap::{Observation, Tap, TapConfig, TapMetrics};

/// Socket of the runtime, at which no runtime listens.
const RUNTIME: &str = "/nonexistent/runtime.sock";

/// Recorded calls of each kind.
const CALLS: &str = include_str!("../history/json/samples.jsonl");

/// Returns the state of a probeshim without a prober.
pub(super) fn admin() -> Arc<Admin> {
    let metrics = ApiMetrics {
        relay: crate::relay::RelayMetrics::default(),
        tap: TapMetrics::default(),
        exec: crate::execsync::ExecMetrics::default(),
        prober: crate::prober::ProberMetrics::default(),
        traces: None,
        panics: Counter::default(),
    };
    let runtime = MeteredChannel::new(&SocketPath::parse(RUNTIME).expect("the path is absolute"));
    let events = Arc::new(EventRecorder::new(false));
    let (tap, _) = Tap::new(TapConfig::default(), metrics.tap.clone());
    let (attempts, _) = AttemptReporter::new();
    let sources =
        TimelineSources { events: events.clone(), tap: metrics.tap.clone(), attempts, redact: false };
    let timeline = Timeline::start(sources, None, NodeFacts::default());
    let calls = Arc::new(CallHistory::new(Limits::default()));
    for record in &*RECORDS {
        let record = calls.push(record.clone());
        timeline.add_call(&record, Some(3));
    }
    let inventory = watch::channel(Arc::new(inventory())).1;
    let specs = watch::channel(SpecResolver::default()).1;
    let policies = Policies::default();
    let internal_calls = tap.internal_calls(CallIds::starting_at(1_000));
    policies.connect(NodeView {
        inventory: inventory.clone(),
        specs: specs.clone(),
        calls: internal_calls.clone(),
        events: events.clone(),
        known_execs: KnownExecs::default(),
    });
    let state = ApiState {
        calls,
        in_flight: InFlightReader::new(tap.calls_in_flight(), internal_calls).0,
        captures: CaptureHub::new(tap.body_capture()),
        redact: false,
        events,
        inventory,
        names: NameView { specs, sources: watch::channel(Arc::<NameSources>::default()).1 },
        stuck: watch::channel(Arc::default()).1,
        prober: None,
        kubelet: Arc::new(OnceLock::new()),
        client_pods: None,
        policies,
        journal: None,
        timeline,
        state: None,
        runtime,
        metrics,
    };
    let info = ServerInfo {
        started: SystemTime::now(),
        mode: EnforcementMode::DryRun,
        listen: "unix:///run/probeshim/probeshim.sock".to_owned(),
        admin: "unix:///run/probeshim/admin.sock".to_owned(),
        http: None,
        metrics: None,
        http_pods: false,
    };
    Arc::new(Admin::new(info, state))
}

/// The recorded calls.
static RECORDS: LazyLock<Vec<CallRecord>> = LazyLock::new(|| {
    let record = |line| {
        let call: json::Call = serde_json::from_str(line).ok()?;
        let record = CallRecord::try_from(call).ok()?;
        let mut call = (*record.call).clone();
        // The samples are older than any period that is requested without a time.
        call.start = SystemTime::now() - Duration::from_secs(60);
        Some(CallRecord { call: Arc::new(call), ..record })
    };
    CALLS.lines().filter_map(record).collect()
});

/// Returns a node with one pod and one container.
fn inventory() -> Inventory {
    let (mut inventory, now) = (Arc::<Inventory>::default(), Instant::now());
    let sandbox = v1::PodSandbox {
        id: "5a4db0c5".to_owned(),
        metadata: Some(v1::PodSandboxMetadata {
            name: "web-1".to_owned(),
            uid: "7".to_owned(),
            namespace: "shop".to_owned(),
            attempt: 0,
        }),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..v1::PodSandbox::default()
    };
    let container = v1::Container {
        id: "c0ffee".to_owned(),
        pod_sandbox_id: sandbox.id.clone(),
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        state: v1::ContainerState::ContainerRunning.into(),
        ..v1::Container::default()
    };
    let observations = vec![
        Observation::SandboxList(vec![sandbox.into()]),
        Observation::ContainerList(vec![container.into()]),
    ];
    inventory.fold(Source::List, now, now, observations);
    Arc::unwrap_or_clone(inventory)
}
