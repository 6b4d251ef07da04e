//! The watcher's requests to the runtime, and its reactions to answers, silence and disconnects.

use std::time::SystemTime;

use bytes::Bytes;
use fixtures::http2::runtime::{Call, Connection, Runtime, ok};
use fixtures::http2::{framed, headers};
use fixtures::wait::soon;
use h2::SendStream;
use http::Response;
use probeshim::containerd::{TaskEvent, TimestampedEvent};
use probeshim::cri::{MeteredChannel, v1};
use probeshim::inventory::{RuntimeEvent, Source, Watcher};
use probeshim::socket::SocketPath;
use probeshim::tap::{Observation, Observations};
use prost::Message;
use prost_types::{Any, Timestamp};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// An event in containerd's envelope.
#[derive(Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    timestamp: Option<Timestamp>,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    topic: String,
    #[prost(message, optional, tag = "4")]
    event: Option<Any>,
}

#[derive(Message)]
struct ExecAdded {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(string, tag = "2")]
    exec_id: String,
}

/// A watcher and its runtime, which the test plays.
struct Watched {
    notices: mpsc::Receiver<RuntimeEvent>,
    connection: Connection,
    /// Calls that arrived before the test expected them.
    early: Vec<Call>,
    _runtime: Runtime,
    _folder: TempDir,
}

impl Watched {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = SocketPath::new(&folder.path().join("runtime.sock")).unwrap();
        let runtime = Runtime::listen(socket.as_path());
        let notices = Watcher::start(MeteredChannel::new(&socket), mpsc::channel(1).1);
        let connection = runtime.accept().await;
        Self { notices, connection, early: Vec::new(), _runtime: runtime, _folder: folder }
    }

    /// Returns the next call to a method, and keeps the calls that come before it.
    async fn call(&mut self, method: &str) -> Call {
        let is_it = |call: &Call| call.request.uri().path().ends_with(method);
        if let Some(place) = self.early.iter().position(is_it) {
            return self.early.remove(place);
        }
        loop {
            let call = self.connection.call().await;
            if is_it(&call) {
                return call;
            }
            self.early.push(call);
        }
    }

    async fn answers_version(&mut self, name: &str, version: &str) {
        let answer = v1::VersionResponse {
            runtime_name: name.to_owned(),
            runtime_version: version.to_owned(),
            ..Default::default()
        };
        self.call("/Version").await.answer(message(&answer));
    }

    /// Accepts the subscription to events.
    async fn subscribed(&mut self) -> SendStream<Bytes> {
        self.call("/Subscribe").await.respond.send_response(ok(), false).unwrap()
    }

    /// Answers both lists, with one container.
    async fn lists(&mut self, container: &str) {
        let metadata = Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 });
        let container = v1::Container { id: container.to_owned(), metadata, ..Default::default() };
        let containers = v1::ListContainersResponse { containers: vec![container] };
        self.call("/ListContainers").await.answer(message(&containers));
        self.call("/ListPodSandbox").await.answer(message(&v1::ListPodSandboxResponse::default()));
    }

    async fn notice(&mut self) -> RuntimeEvent {
        soon(self.notices.recv()).await.unwrap()
    }

    /// Asserts that the next notice is Connected, and returns whether the runtime has exec events.
    async fn is_there(&mut self) -> bool {
        match self.notice().await {
            RuntimeEvent::Connected { has_exec_events, .. } => has_exec_events,
            other => panic!("{other:?}"),
        }
    }
}

fn message(message: &impl Message) -> Bytes {
    framed(false, &message.encode_to_vec())
}

fn publish(events: &mut SendStream<Bytes>, exec: &str) {
    let added = ExecAdded { container_id: "c0ffee".into(), exec_id: exec.to_owned() };
    let envelope = Envelope {
        timestamp: Some(SystemTime::now().into()),
        namespace: "k8s.io".into(),
        topic: "/tasks/exec-added".into(),
        event: Some(Any { type_url: "containerd.events.TaskExecAdded".into(), value: added.encode_to_vec() }),
    };
    events.send_data(message(&envelope), false).unwrap();
}

/// Ends a call with a gRPC status and nothing else.
fn refuse(mut call: Call, code: &str) {
    let head = Response::builder().header("content-type", "application/grpc").header("grpc-status", code);
    call.respond.send_response(head.body(()).unwrap(), true).unwrap();
}

/// Returns whether a notice reports that an exec with this id was added.
fn is_added(notice: &RuntimeEvent, id: &str) -> bool {
    matches!(notice, RuntimeEvent::Task(TimestampedEvent { event: TaskEvent::ExecAdded { exec, .. }, .. }) if exec == id)
}

#[tokio::test]
async fn runtime_events_arrive_while_a_list_hangs_and_after_it_has_failed() {
    let mut watched = Watched::start().await;
    watched.answers_version("containerd", "v1.7.29").await;
    let mut events = watched.subscribed().await;
    assert!(watched.is_there().await);
    let list = watched.call("/ListContainers").await;
    publish(&mut events, "one");
    assert!(is_added(&watched.notice().await, "one"));
    refuse(list, "14");
    publish(&mut events, "two");
    assert!(is_added(&watched.notice().await, "two"), "a failed list must not end the events");
}

#[tokio::test]
async fn the_end_of_runtime_events_is_reported_and_they_are_subscribed_again() {
    let mut watched = Watched::start().await;
    watched.answers_version("containerd", "v1.7.29").await;
    let mut events = watched.subscribed().await;
    assert!(watched.is_there().await);
    // The CRI service keeps running, so the same connection is still used.
    events.send_trailers(headers(&[("grpc-status", "14")])).unwrap();
    assert!(matches!(watched.notice().await, RuntimeEvent::Disconnected));
    watched.answers_version("containerd", "v1.7.29").await;
    let mut events = watched.subscribed().await;
    assert!(watched.is_there().await);
    publish(&mut events, "again");
    assert!(is_added(&watched.notice().await, "again"));
}

#[tokio::test]
async fn a_runtime_without_events_is_listed() {
    let mut watched = Watched::start().await;
    watched.answers_version("containerd", "v1.6.0").await;
    refuse(watched.call("/Subscribe").await, "12");
    watched.lists("c0ffee").await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        match watched.notice().await {
            RuntimeEvent::Connected { has_exec_events, .. } => {
                seen.push(format!("there, tells {has_exec_events}"));
            }
            RuntimeEvent::Observed(Source::List, Observations { items, .. }) => {
                let containers = items.iter().find_map(|fact| match fact {
                    Observation::ContainerList(containers) => Some(containers),
                    _ => None,
                });
                seen.push(format!("listed {}", containers.unwrap()[0].id));
            }
            other => panic!("{other:?}"),
        }
    }
    seen.sort();
    assert_eq!(seen, ["listed c0ffee", "there, tells false"]);
}

#[tokio::test]
async fn container_events_of_containerd_1_7_are_left_to_the_kubelet() {
    for (version, subscribes) in [("v1.7.29", false), ("v2.2.1", true)] {
        let mut watched = Watched::start().await;
        watched.answers_version("containerd", version).await;
        let _events = watched.subscribed().await;
        assert!(watched.is_there().await);
        watched.lists("c0ffee").await;
        assert!(matches!(watched.notice().await, RuntimeEvent::Observed(Source::List, _)));
        let is_subscription = |call: &Call| call.request.uri().path().ends_with("/GetContainerEvents");
        assert_eq!(watched.early.iter().any(is_subscription), subscribes, "{version}");
    }
}
