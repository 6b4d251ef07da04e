use std::collections::HashSet;

use tokio::sync::mpsc;

use super::*;
use crate::cri::{MeteredChannel, SandboxObservation, v1};
use crate::execsync;
use crate::history::recorder::TimelineSources;
use crate::history::timeline::NodeFacts;
use crate::socket::SocketPath;
use crate::tap::{BodyCapture, Observation, Observations};

/// Returns an engine without a prober, its events and its inspect requests.
fn engine() -> (NodeEngine, Arc<EventRecorder>, mpsc::Receiver<InspectRequest>) {
    let client = MeteredChannel::new(&SocketPath::parse("/nowhere.sock").unwrap()).client();
    let analyzer = ExecAnalyzer::start(
        execsync::SlownessConfig::default(),
        SpecResolver::default(),
        client,
        execsync::ExecMetrics::default(),
    );
    let events = Arc::new(EventRecorder::default());
    let (inspect_requests, requested) = mpsc::channel(100);
    let outputs = Outputs {
        inventory: watch::channel(Arc::default()).0,
        stuck: watch::channel(Arc::default()).0,
        specs: watch::channel(SpecResolver::default()).0,
        calls: Arc::new(CallHistory::new(crate::history::Limits::default())),
        events: events.clone(),
        journal: None,
        timeline: Timeline::start(TimelineSources::default(), None, NodeFacts::default()),
        captures: CaptureHub::new(BodyCapture::default()),
        traces: None,
        faults: Counter::default(),
        inspect_requests,
        refresh: RefreshTrigger::default(),
    };
    let engine = NodeEngine::new(analyzer.unwrap(), None, Arc::default(), None, outputs);
    (engine, events, requested)
}

#[tokio::test]
async fn a_panic_in_the_engine_is_counted_and_later_events_are_processed() {
    let (mut engine, events, _requested) = engine();
    engine.catch_panics(|_| panic!("for the test"));
    engine.catch_panics(|it| it.on_runtime_event(RuntimeEvent::Disconnected));
    assert_eq!(engine.outputs.faults.get(), 1);
    assert_eq!(events.select(&crate::events::EventFilter::default()).len(), 1);
}

/// Returns a list, which has no addresses, or the statuses of the first `count` sandboxes.
fn sandboxes(count: usize, source: Source) -> RuntimeEvent {
    let is_list = source == Source::List;
    let sandboxes = (0..count).map(|number| {
        let id = number.to_string();
        let metadata = Some(v1::PodSandboxMetadata { name: id.clone(), ..Default::default() });
        let addresses = (!is_list).then(|| vec!["192.0.2.7".to_owned()]);
        SandboxObservation { id, metadata, is_ready: Some(true), addresses, ..Default::default() }
    });
    let items = if is_list {
        vec![Observation::SandboxList(sandboxes.collect())]
    } else {
        sandboxes.map(Observation::Sandbox).collect()
    };
    RuntimeEvent::Observed(source, Observations { observed_since: Instant::now(), items })
}

#[tokio::test]
async fn unknown_addresses_are_requested_again_with_each_list() {
    let (mut engine, _events, mut requested) = engine();
    let mut count = |engine: &mut NodeEngine, event| {
        engine.on_runtime_event(event);
        let mut all = HashSet::new();
        while let Ok(InspectRequest::Sandbox(id)) = requested.try_recv() {
            all.insert(id);
        }
        all.len()
    };
    assert_eq!(count(&mut engine, sandboxes(30, Source::List)), 30);
    assert_eq!(count(&mut engine, sandboxes(30, Source::List)), 16);
    assert_eq!(count(&mut engine, sandboxes(29, Source::Inspect)), 0);
    assert_eq!(count(&mut engine, sandboxes(30, Source::List)), 1);
    assert_eq!(count(&mut engine, sandboxes(30, Source::Inspect)), 0);
    assert_eq!(count(&mut engine, sandboxes(30, Source::List)), 0);
}

#[tokio::test]
async fn sandboxes_in_the_network_of_the_host_take_no_place_of_a_repeated_request() {
    let (mut engine, _events, mut requested) = engine();
    engine.on_runtime_event(sandboxes(30, Source::List));
    let items = (10..30).map(|number| {
        let is_host_network = Some(true);
        let id = number.to_string();
        Observation::Sandbox(SandboxObservation { id, is_host_network, ..Default::default() })
    });
    let observations = Observations { observed_since: Instant::now(), items: items.collect() };
    engine.on_runtime_event(RuntimeEvent::Observed(Source::Inspect, observations));
    while requested.try_recv().is_ok() {}
    engine.on_runtime_event(sandboxes(30, Source::List));
    assert_eq!(requested.len(), 10);
}
