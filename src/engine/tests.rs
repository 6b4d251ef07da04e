use super::*;
use crate::cri::MeteredChannel;
use crate::execsync;
use crate::history::recorder::TimelineSources;
use crate::history::timeline::NodeFacts;
use crate::socket::SocketPath;
use crate::tap::BodyCapture;

#[tokio::test]
async fn a_panic_in_the_engine_is_counted_and_later_events_are_processed() {
    let client = MeteredChannel::new(&SocketPath::parse("/nowhere.sock").unwrap()).client();
    let analyzer = ExecAnalyzer::start(
        execsync::SlownessConfig::default(),
        SpecResolver::default(),
        client,
        execsync::ExecMetrics::default(),
    );
    let events = Arc::new(EventRecorder::default());
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
        inspect_requests: mpsc::channel(1).0,
        refresh: RefreshTrigger::default(),
    };
    let mut engine = NodeEngine::new(analyzer.unwrap(), None, Arc::default(), None, outputs);
    engine.catch_panics(|_| panic!("for the test"));
    engine.catch_panics(|it| it.on_runtime_event(RuntimeEvent::Disconnected));
    assert_eq!(engine.outputs.faults.get(), 1);
    assert_eq!(events.select(&crate::events::EventFilter::default()).len(), 1);
}
