//! Limits and coalescing of ExecSyncs, at the relay between a client and a runtime of the tests.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use fixtures::http2::client::{Client, head};
use fixtures::http2::runtime::{Connection, Runtime, ok};
use fixtures::http2::{Shim, framed, headers, read_all, shim_with_policy};
use fixtures::wait::soon;
use h2::Reason;
use h2::client::ResponseFuture;
use http::HeaderMap;
use probeshim::cri::{ContainerObservation, SandboxObservation, v1};
use probeshim::events::EventRecorder;
use probeshim::inventory::{Inventory, Source};
use probeshim::manifest::Files;
use probeshim::policy::{ExecLimits, ExecSettings, KnownExecs, NodeView, Overflow, Policies};
use probeshim::probe::SpecResolver;
use probeshim::relay::{CallIds, CallOutcome};
use probeshim::tap::{Call, Observation, Tap, TapConfig, TapMetrics};
use prost::Message;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";
const VERSION: &str = "/runtime.v1.RuntimeService/Version";

/// A relay with policies for ExecSync, a client, and the runtime's side of its connection. The node
/// has a pod with the containers `main` and `side`. The exec probe `alive` of `main` has a timeout
/// of two seconds.
struct Limited {
    policies: Policies,
    client: Client,
    connection: Connection,
    _runtime: Runtime,
    shim: Shim,
    _tap: Tap,
}

impl Limited {
    async fn with(settings: ExecSettings) -> Self {
        let (tap, _) = Tap::new(TapConfig::default(), TapMetrics::default());
        let mut inventory = Arc::<Inventory>::default();
        let now = Instant::now();
        inventory.fold(Source::List, now, now, objects());
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": [{
                "name": "main", "image": "web", "livenessProbe": {"exec": {"command": ["alive"]}, "timeoutSeconds": 2},
            }]},
        });
        let manifest = tempfile::NamedTempFile::with_suffix(".json").unwrap();
        std::fs::write(manifest.path(), pod.to_string()).unwrap();
        let specs = SpecResolver::from_files(&Files::read(&[manifest.path().to_owned()], false).unwrap());
        let policies = Policies::default();
        policies.connect(NodeView {
            inventory: watch::channel(inventory).1,
            specs: watch::channel(specs).1,
            calls: tap.internal_calls(CallIds::starting_at(1)),
            events: Arc::new(EventRecorder::default()),
            known_execs: KnownExecs::default(),
        });
        policies.set_exec(settings);
        let shim = shim_with_policy(Arc::new(policies.clone()));
        let (client, connection, runtime) = shim.joined().await;
        Self { policies, client, connection, _runtime: runtime, shim, _tap: tap }
    }

    /// Starts an ExecSync with a timeout of two seconds.
    fn exec(&mut self, container: &str, command: &str) -> ResponseFuture {
        self.client.call(EXEC_SYNC, exec(container, command))
    }

    /// Waits until this number of calls wait because of a limit, and for the result of another.
    async fn are_waiting(&self, limit: u64, shared: u64) {
        soon(async {
            while self.policies.waiting() != [limit, shared] {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Makes a call that no policy affects. The relay handles the calls of a connection in order,
    /// so that it has handled all earlier calls then.
    async fn settle(&mut self) {
        let response = self.client.ask(VERSION);
        let mut call = self.connection.call().await;
        assert_eq!(call.request.uri().path(), VERSION, "a call was sent that should wait");
        call.body().await;
        call.answer("");
        whole(response).await;
    }

    /// Returns the policies that affected the first `count` calls to ExecSync, by call.
    async fn marks(&self, count: usize) -> Vec<String> {
        let is_exec = |call: &&Arc<Call>| call.exec.is_some();
        let calls = soon(async {
            loop {
                let calls = self.shim.seen(count).await;
                if calls.iter().filter(is_exec).count() >= count {
                    return calls;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        let mut calls: Vec<_> = calls.iter().filter(is_exec).collect();
        calls.sort_by_key(|call| call.id);
        let policies = |call: &&Arc<Call>| {
            call.marks.iter().flat_map(|marks| &marks.policies).map(ToString::to_string).collect::<String>()
        };
        calls.iter().map(policies).collect()
    }
}

fn objects() -> Vec<Observation> {
    let metadata =
        v1::PodSandboxMetadata { name: "web".into(), namespace: "shop".into(), ..Default::default() };
    let sandbox = SandboxObservation {
        id: "pod".into(),
        metadata: Some(metadata),
        is_ready: Some(true),
        ..SandboxObservation::default()
    };
    let container = |name: &str| {
        Observation::Container(ContainerObservation {
            id: name.into(),
            sandbox: Some("pod".into()),
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            state: Some(v1::ContainerState::ContainerRunning),
            ..ContainerObservation::default()
        })
    };
    vec![Observation::Sandbox(sandbox), container("main"), container("side")]
}

fn exec(container: &str, command: &str) -> Bytes {
    let request =
        v1::ExecSyncRequest { container_id: container.into(), cmd: vec![command.into()], timeout: 2 };
    framed(false, &request.encode_to_vec())
}

fn exited(code: i32) -> Bytes {
    let response = v1::ExecSyncResponse { exit_code: code, stdout: b"out".into(), stderr: Vec::new() };
    framed(false, &response.encode_to_vec())
}

fn limits(node: u32, container: u32, overflow: Overflow) -> ExecSettings {
    let limits = ExecLimits { node: NonZeroU32::new(node), container: NonZeroU32::new(container), overflow };
    ExecSettings { limits, ..ExecSettings::default() }
}

fn coalescing() -> ExecSettings {
    ExecSettings { coalesce_probes: true, ..ExecSettings::default() }
}

/// Returns the head, the data and the trailers of a response.
async fn whole(response: ResponseFuture) -> (HeaderMap, Bytes, Option<HeaderMap>) {
    let (head, mut body) = head(response).await;
    let (data, trailers) = read_all(&mut body).await.unwrap();
    (head.headers().clone(), data, trailers)
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_sent_once_another_has_ended() {
    let mut limited = Limited::with(limits(2, 1, Overflow::Wait)).await;
    let first = limited.exec("main", "a");
    let mut running = limited.connection.call().await;
    assert_eq!(running.body().await, exec("main", "a"));
    let second = limited.exec("main", "b");
    limited.are_waiting(1, 0).await;
    let other = limited.exec("side", "c");
    let mut of_other = limited.connection.call().await;
    assert_eq!(of_other.body().await, exec("side", "c"), "another container has room");
    running.answer(exited(0));
    assert_eq!(whole(first).await.1, exited(0));
    let mut next = limited.connection.call().await;
    assert_eq!(next.body().await, exec("main", "b"));
    next.answer(exited(1));
    assert_eq!(whole(second).await.1, exited(1));
    of_other.answer(exited(2));
    assert_eq!(whole(other).await.1, exited(2));
    assert_eq!(limited.marks(3).await, ["", "limit", ""]);
}

#[tokio::test]
async fn a_client_that_gives_up_leaves_the_queue() {
    let mut limited = Limited::with(limits(1, 0, Overflow::Wait)).await;
    let first = limited.exec("main", "a");
    let running = limited.connection.call().await;
    let second = limited.exec("main", "b");
    let third = limited.exec("side", "c");
    limited.are_waiting(2, 0).await;
    drop(second);
    limited.are_waiting(1, 0).await;
    running.answer(exited(0));
    whole(first).await;
    let mut next = limited.connection.call().await;
    assert_eq!(next.body().await, exec("side", "c"));
    next.answer(exited(0));
    whole(third).await;
    assert_eq!(limited.marks(3).await, ["", "limit", "limit"]);
    let given_up = limited.shim.seen(3).await.into_iter().find(|call| call.id == 2).unwrap();
    assert_eq!(given_up.ending, CallOutcome::ClientReset(Reason::CANCEL));
}

#[tokio::test]
async fn a_call_beyond_the_limit_fails_if_so_configured_and_other_methods_do_not() {
    let mut limited = Limited::with(limits(1, 0, Overflow::Fail)).await;
    let first = limited.exec("main", "a");
    let running = limited.connection.call().await;
    let (headers, data, trailers) = whole(limited.exec("main", "b")).await;
    assert_eq!((&headers["grpc-status"], data.len(), trailers), (&"8".parse().unwrap(), 0, None));
    let message = headers["grpc-message"].to_str().unwrap();
    assert!(message.ends_with("the%20limits%20are%201%20on%20the%20node"), "{message}");
    limited.settle().await;
    running.answer(exited(0));
    whole(first).await;
    let third = limited.exec("main", "c");
    limited.connection.call().await.answer(exited(0));
    whole(third).await;
    assert_eq!(limited.marks(3).await, ["", "limit", ""]);
}

#[tokio::test]
async fn identical_probes_share_one_call_and_its_exact_response() {
    let mut limited = Limited::with(coalescing()).await;
    let first = limited.exec("main", "alive");
    let mut running = limited.connection.call().await;
    assert_eq!(running.body().await, exec("main", "alive"));
    let (second, given_up) = (limited.exec("main", "alive"), limited.exec("main", "alive"));
    limited.are_waiting(0, 2).await;
    drop(given_up);
    limited.are_waiting(0, 1).await;
    let mut head = ok();
    head.headers_mut().insert("x-runtime", "7".parse().unwrap());
    let mut body = running.respond.send_response(head, false).unwrap();
    body.send_data(exited(3), false).unwrap();
    body.send_trailers(headers(&[("grpc-status", "0"), ("x-trailer", "8")])).unwrap();
    let (one, other) = (whole(first).await, whole(second).await);
    assert_eq!(one, other);
    assert_eq!(
        (&one.0["x-runtime"], one.1, &one.2.unwrap()["x-trailer"]),
        (&"7".parse().unwrap(), exited(3), &"8".parse().unwrap())
    );
    assert_eq!(limited.marks(3).await, ["", "coalesce", "coalesce"]);
    // The next call is a call of its own.
    let next = limited.exec("main", "alive");
    limited.connection.call().await.answer(exited(0));
    assert_eq!(whole(next).await.1, exited(0));
}

#[tokio::test]
async fn a_failed_call_is_shared_and_one_without_a_response_is_made_again() {
    let mut limited = Limited::with(coalescing()).await;
    let first = limited.exec("main", "alive");
    let mut running = limited.connection.call().await;
    let second = limited.exec("main", "alive");
    limited.are_waiting(0, 1).await;
    let status = |code| {
        let mut head = ok();
        head.headers_mut().extend(headers(&[("grpc-status", code), ("grpc-message", "failed")]));
        head
    };
    running.respond.send_response(status("2"), true).unwrap();
    let failed = whole(first).await;
    assert_eq!((&failed.0["grpc-status"], failed.1.len()), (&"2".parse().unwrap(), 0));
    assert_eq!(whole(second).await, failed);
    // A call that came later has more time than one whose time is over.
    let first = limited.exec("main", "alive");
    let mut running = limited.connection.call().await;
    let second = limited.exec("main", "alive");
    limited.are_waiting(0, 1).await;
    running.respond.send_response(status("4"), true).unwrap();
    assert_eq!(&whole(first).await.0["grpc-status"], "4");
    limited.connection.call().await.answer(exited(0));
    assert_eq!(whole(second).await.1, exited(0));
    // The client of the call that is in flight gives up: the next one in the queue is sent.
    let first = limited.exec("main", "alive");
    let mut running = limited.connection.call().await;
    let second = limited.exec("main", "alive");
    limited.are_waiting(0, 1).await;
    drop(first);
    assert_eq!(running.reset().await, Reason::CANCEL);
    let mut again = limited.connection.call().await;
    assert_eq!(again.body().await, exec("main", "alive"));
    again.answer(exited(0));
    assert_eq!(whole(second).await.1, exited(0));
    assert_eq!(limited.marks(6).await, ["", "coalesce", "", "coalesce", "", "coalesce"]);
}

#[tokio::test]
async fn a_response_that_is_too_long_to_be_shared_is_for_its_client_only() {
    let mut limited = Limited::with(coalescing()).await;
    let first = limited.exec("main", "alive");
    let running = limited.connection.call().await;
    let second = limited.exec("main", "alive");
    limited.are_waiting(0, 1).await;
    let long = v1::ExecSyncResponse { stdout: vec![7; 17 << 20], ..v1::ExecSyncResponse::default() };
    let long = framed(false, &long.encode_to_vec());
    running.answer(long.clone());
    limited.connection.call().await.answer(exited(0));
    assert_eq!(whole(second).await.1, exited(0));
    assert_eq!(whole(first).await.1, long);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_keeps_no_place() {
    let mut limited = Limited::with(limits(1, 0, Overflow::Wait)).await;
    let unread = limited.exec("main", "a");
    let long = v1::ExecSyncResponse { stdout: vec![7; 1 << 20], ..v1::ExecSyncResponse::default() };
    limited.connection.call().await.answer(framed(false, &long.encode_to_vec()));
    let (_, unread) = head(unread).await;
    let second = limited.exec("main", "b");
    limited.connection.call().await.answer(exited(0));
    assert_eq!(whole(second).await.1, exited(0));
    drop(unread);
}

#[tokio::test]
async fn calls_that_are_no_probes_or_differ_are_not_coalesced() {
    let mut limited = Limited::with(coalescing()).await;
    let responses =
        [("main", "other"), ("main", "other"), ("side", "alive"), ("side", "alive"), ("main", "alive")]
            .map(|(container, command)| limited.exec(container, command));
    for _ in 0..5 {
        limited.connection.call().await.answer(exited(0));
    }
    for response in responses {
        assert_eq!(whole(response).await.1, exited(0));
    }
    assert_eq!(limited.marks(5).await, [""; 5]);
}

#[tokio::test]
async fn a_coalesced_call_takes_one_place_within_the_limit() {
    let settings = ExecSettings { coalesce_probes: true, ..limits(1, 0, Overflow::Wait) };
    let mut limited = Limited::with(settings).await;
    let first = limited.exec("side", "a");
    let running = limited.connection.call().await;
    let probes = [(); 3].map(|()| limited.exec("main", "alive"));
    limited.are_waiting(1, 2).await;
    limited.settle().await;
    running.answer(exited(0));
    whole(first).await;
    let mut probe = limited.connection.call().await;
    assert_eq!(probe.body().await, exec("main", "alive"));
    probe.answer(exited(5));
    for response in probes {
        assert_eq!(whole(response).await.1, exited(5));
    }
    assert_eq!(limited.marks(4).await, ["", "limit", "coalesce", "coalesce"]);
    // Changed limits are in effect at once.
    limited.policies.set_exec(ExecSettings::default());
    let all = [(); 3].map(|()| limited.exec("main", "alive"));
    for _ in 0..3 {
        limited.connection.call().await.answer(exited(0));
    }
    for response in all {
        whole(response).await;
    }
}
