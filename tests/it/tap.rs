//! Observation of calls by the tap, which must not change the calls.

use std::time::Duration;

use bytes::Bytes;
use fixtures::http2::client::{Client, head};
use fixtures::http2::runtime::{Connection, Runtime, ok};
use fixtures::http2::wire::{GOAWAY, HEADERS, SETTINGS, Wire, frame, word};
use fixtures::http2::{Shim, framed, headers, read_all, request, send_all, shim, tapped};
use fixtures::wait::soon;
use h2::Reason;
use http::Response;
use probeshim::cri::v1;
use probeshim::metrics::{self, MetricsFormat};
use probeshim::tap::{Call, ExecCall, ExecResult, TapConfig};
use prost::Message;

const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";

/// A client, the runtime's end of its connection, and the relay between both.
struct Tapped {
    client: Client,
    connection: Connection,
    runtime: Runtime,
    shim: Shim,
}

impl Tapped {
    async fn new(shim: Shim) -> Self {
        let (client, connection, runtime) = shim.joined().await;
        Self { client, connection, runtime, shim }
    }

    /// Makes a successful call.
    async fn call(&mut self, method: &str, request: Bytes, response: Bytes) {
        let answer = self.client.call(method, request);
        let mut call = self.connection.call().await;
        call.body().await;
        call.answer(response);
        let (_, mut body) = head(answer).await;
        read_all(&mut body).await.unwrap();
    }

    /// Makes an ExecSync and returns its observation.
    async fn exec(&mut self, request: Bytes, response: Bytes) -> std::sync::Arc<Call> {
        let before = self.shim.calls.counts().retained;
        self.call(EXEC_SYNC, request, response).await;
        self.shim.seen(before + 1).await.pop().unwrap()
    }

    /// Waits until `count` observations have been dropped. A call is observed after its client has
    /// the answer.
    async fn has_dropped(&self, count: u64) {
        let dropped = async {
            while self.shim.tap_metrics.observations_dropped() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(dropped).await;
    }

    /// Returns the value of a metric series.
    fn metric(&self, series: &str) -> u64 {
        let mut registry = metrics::registry();
        self.shim.tap_metrics.register(&mut registry);
        self.shim.relay_metrics.register(&mut registry);
        let text = metrics::encode(&registry, MetricsFormat::Prometheus);
        let found =
            text.lines().find_map(|found| found.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        found.unwrap_or_else(|| panic!("no {series} in {text}"))
    }
}

fn message(message: &impl Message) -> Bytes {
    framed(false, &message.encode_to_vec())
}

fn exec_request(command: &[&str], timeout: i64) -> v1::ExecSyncRequest {
    let cmd = command.iter().map(ToString::to_string).collect();
    v1::ExecSyncRequest { container_id: "c0ffee".into(), cmd, timeout }
}

#[tokio::test]
async fn an_exec_sync_is_observed_with_the_beginning_of_its_output_if_it_failed() {
    let mut tapped = Tapped::new(shim()).await;
    let request = message(&exec_request(&["cat", "/tmp/healthy"], 3));
    let response =
        message(&v1::ExecSyncResponse { stdout: b"four".into(), stderr: b"seven!!".into(), exit_code: 5 });
    let (sent, received) = (request.len() as u64, response.len() as u64);
    let call = tapped.exec(request, response).await;
    assert_eq!(
        (call.id, call.method.to_string().as_str(), call.ending.to_string().as_str()),
        (1, "ExecSync", "OK")
    );
    assert_eq!((call.request_bytes, call.response_bytes), (sent, received));
    assert_eq!(call.container.as_ref().unwrap().id.as_deref(), Some("c0ffee"));
    let result = ExecResult { exit_code: 5, stdout_bytes: 4, stderr_bytes: 7 };
    let command = vec!["cat".to_owned(), "/tmp/healthy".to_owned()];
    let output = Some("fourseven!!".into());
    assert_eq!(
        call.exec.as_deref(),
        Some(&ExecCall { command, timeout_seconds: 3, result: Some(result), output, ..ExecCall::default() })
    );
    let peer = call.peer.as_ref().unwrap();
    assert_eq!(peer.pid, Some(std::process::id().cast_signed()));
    assert_eq!(peer.uid, rustix::process::getuid().as_raw());
    assert!(peer.program.is_some());
}

#[tokio::test]
async fn observed_calls_name_the_pods_and_containers_in_their_messages() {
    let mut tapped = Tapped::new(shim()).await;
    let metadata =
        v1::PodSandboxMetadata { name: "web".into(), uid: "u1".into(), namespace: "shop".into(), attempt: 0 };
    let sandbox = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    let container = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "nginx".into(), attempt: 2 }),
        ..Default::default()
    };
    let service = |method: &str| format!("/runtime.v1.RuntimeService/{method}");
    let run = v1::RunPodSandboxRequest { config: Some(sandbox.clone()), runtime_handler: String::new() };
    let ran = v1::RunPodSandboxResponse { pod_sandbox_id: "p0d".into() };
    tapped.call(&service("RunPodSandbox"), message(&run), message(&ran)).await;
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "p0d".into(),
        config: Some(container),
        sandbox_config: Some(sandbox),
    };
    let created = v1::CreateContainerResponse { container_id: "c0ffee".into() };
    tapped.call(&service("CreateContainer"), message(&create), message(&created)).await;
    let stop = v1::StopContainerRequest { container_id: "c0ffee".into(), timeout: 1 };
    tapped.call(&service("StopContainer"), message(&stop), message(&v1::StopContainerResponse {})).await;

    let seen = tapped.shim.seen(3).await;
    for call in &seen[..2] {
        let pod = call.pod.as_ref().unwrap();
        let named = [&pod.id, &pod.namespace, &pod.name, &pod.uid].map(|part| part.as_deref().unwrap());
        assert_eq!(named, ["p0d", "shop", "web", "u1"]);
    }
    let created = seen[1].container.as_ref().unwrap();
    assert_eq!(
        (created.id.as_deref(), created.name.as_deref(), created.attempt),
        (Some("c0ffee"), Some("nginx"), Some(2))
    );
    assert_eq!(seen[2].container.as_ref().unwrap().id.as_deref(), Some("c0ffee"));
    assert_eq!(seen[2].pod, None);
}

#[tokio::test]
async fn undecodable_messages_are_counted_and_their_calls_observed() {
    let mut tapped = Tapped::new(shim()).await;
    let request = message(&exec_request(&["true"], 0));
    let exited = |code| message(&v1::ExecSyncResponse { exit_code: code, ..Default::default() });

    // The response exceeds the limit of a capture.
    let long = v1::ExecSyncResponse { stdout: vec![b'x'; 1 << 20], ..Default::default() };
    let call = tapped.exec(request.clone(), message(&long)).await;
    assert_eq!(call.exec.as_ref().unwrap().result, None, "an undecoded result must be unknown");
    assert!(call.response_bytes > 1 << 20);
    assert_eq!(tapped.metric(r#"probeshim_messages_not_decoded_total{reason="too-long"}"#), 1);

    let compressed = framed(true, &exec_request(&["true"], 0).encode_to_vec());
    let call = tapped.exec(compressed, exited(0)).await;
    assert_eq!((&call.exec, &call.container), (&None, &None));
    assert_eq!(tapped.metric(r#"probeshim_messages_not_decoded_total{reason="compressed"}"#), 1);

    tapped.exec(framed(false, b"\xff\xff\xff"), exited(0)).await;
    assert_eq!(tapped.metric(r#"probeshim_messages_not_decoded_total{reason="malformed"}"#), 1);

    tapped.exec(request.slice(..7), exited(0)).await;
    assert_eq!(tapped.metric(r#"probeshim_messages_not_decoded_total{reason="not-one-message"}"#), 1);

    // The next call can be decoded.
    let call = tapped.exec(request, exited(7)).await;
    assert_eq!(call.exec.as_ref().unwrap().result.unwrap().exit_code, 7);
    assert_eq!(tapped.metric(r#"probeshim_calls_total{method="ExecSync",code="OK"}"#), 5);
}

#[tokio::test]
async fn captures_beyond_the_memory_budget_are_given_up_and_counted() {
    let settings = TapConfig { captured_bytes: 30, ..TapConfig::default() };
    let (shim, decoder) = tapped(Duration::ZERO, settings);
    let mut tapped = Tapped::new(shim).await;
    let request = message(&exec_request(&["true"], 0));
    let response = message(&v1::ExecSyncResponse { exit_code: 1, ..Default::default() });
    assert!(request.len() + response.len() <= 30 && 2 * request.len() + response.len() > 30);
    for _ in 0..2 {
        tapped.call(EXEC_SYNC, request.clone(), response.clone()).await;
    }
    tapped.shim.decode(decoder);
    let seen = tapped.shim.seen(2).await;
    assert!(seen[0].exec.as_ref().is_some_and(|exec| exec.result.is_some()));
    assert_eq!(seen[1].exec, None);
    assert_eq!(tapped.metric(r#"probeshim_messages_not_decoded_total{reason="no-room"}"#), 2);
    // The decoded captures have released their memory.
    let call = tapped.exec(request, response).await;
    assert!(call.exec.as_ref().unwrap().result.is_some());
}

#[tokio::test]
async fn every_call_outcome_has_its_code() {
    let mut tapped = Tapped::new(shim()).await;
    let trailers_only = |status: &str| {
        Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", status)
            .body(())
            .unwrap()
    };
    for status in ["4", "99"] {
        let answer = tapped.client.ask("/a.B/C");
        tapped.connection.call().await.respond.send_response(trailers_only(status), true).unwrap();
        drop(head(answer).await);
    }

    let answer = tapped.client.ask("/a.B/C");
    tapped.connection.call().await.respond.send_response(ok(), true).unwrap();
    drop(head(answer).await);

    let answer = tapped.client.ask("/a.B/C");
    tapped.connection.call().await.respond.send_reset(Reason::ENHANCE_YOUR_CALM);
    soon(answer).await.unwrap_err();

    let (answer, mut stream) = tapped.client.start(request("/a.B/C"), false);
    let mut call = tapped.connection.call().await;
    stream.send_reset(Reason::CANCEL);
    assert_eq!(call.reset().await, Reason::CANCEL);
    drop(answer);

    let codes: Vec<String> = tapped.shim.seen(5).await.iter().map(|call| call.ending.to_string()).collect();
    assert_eq!(codes, ["DEADLINE_EXCEEDED", "CODE(99)", "no-status", "upstream-reset", "client-reset"]);
    assert_eq!(tapped.metric(r#"probeshim_calls_total{method="other",code="other"}"#), 1);

    let (_answer, mut stream) = tapped.client.start(request("/a.B/C"), false);
    send_all(&mut stream, Bytes::from_static(b"12345"), false).await.unwrap();
    let mut call = tapped.connection.call().await;
    soon(call.request.body_mut().data()).await.unwrap().unwrap();
    tapped.client.vanish();
    let gone = tapped.shim.seen(6).await.pop().unwrap();
    assert_eq!((gone.ending.to_string(), gone.request_bytes), ("client-gone".to_owned(), 5));

    // On another connection, the upstream breaks the connection during a call.
    let (mut client, mut connection) = tokio::join!(tapped.shim.client(), tapped.runtime.accept());
    let answer = client.ask("/a.B/C");
    let _call = connection.call().await;
    connection.vanish();
    soon(answer).await.unwrap_err();
    assert_eq!(tapped.shim.seen(7).await.pop().unwrap().ending.to_string(), "connection-lost");
}

#[tokio::test]
async fn the_status_message_of_a_failed_call_is_kept_from_the_trailers_or_the_head() {
    let mut tapped = Tapped::new(shim()).await;
    for (status, in_head) in [("2", true), ("2", false), ("0", false)] {
        let answer = tapped.client.ask("/a.B/C");
        let mut respond = tapped.connection.call().await.respond;
        let status = [("grpc-status", status), ("grpc-message", "exec: \"curl\" %C3%B6")];
        if in_head {
            let mut head = ok();
            head.headers_mut().extend(headers(&status));
            respond.send_response(head, true).unwrap();
        } else {
            respond.send_response(ok(), false).unwrap().send_trailers(headers(&status)).unwrap();
        }
        let (_, mut body) = head(answer).await;
        read_all(&mut body).await.unwrap();
    }
    let calls = tapped.shim.seen(3).await;
    let messages: Vec<Option<&str>> = calls.iter().map(|call| call.message.as_deref()).collect();
    assert_eq!(messages, [Some("exec: \"curl\" ö"), Some("exec: \"curl\" ö"), None]);
}

#[tokio::test]
async fn a_call_with_a_slow_client_is_lost_with_its_upstream_connection() {
    let mut tapped = Tapped::new(shim()).await;
    // The body exceeds the client's window, and the client does not release any of it.
    let large = tapped.client.ask("/a.B/Large");
    let mut call = tapped.connection.call().await;
    let mut body = call.respond.send_response(ok(), false).unwrap();
    body.send_data(vec![0; 1 << 20].into(), false).unwrap();
    let (_, mut unread) = head(large).await;
    soon(unread.data()).await.unwrap().unwrap();
    let waiting = tapped.client.ask("/a.B/Waiting");
    let _waiting = tapped.connection.call().await;
    tapped.connection.vanish();
    soon(waiting).await.unwrap_err();
    let endings: Vec<String> = tapped.shim.seen(2).await.iter().map(|call| call.ending.to_string()).collect();
    assert_eq!(endings, ["connection-lost", "connection-lost"]);
}

#[tokio::test]
async fn a_complete_answer_is_the_outcome_even_if_the_request_is_cut_off() {
    let mut tapped = Tapped::new(shim()).await;
    let (answer, mut rest) = tapped.client.start(request("/a.B/Early"), false);
    let mut call = tapped.connection.call().await;
    let unimplemented = Response::builder().header("grpc-status", "12").body(()).unwrap();
    call.respond.send_response(unimplemented, true).unwrap();
    drop(head(answer).await);
    rest.send_data(Bytes::from_static(b"more"), false).unwrap();
    tapped.client.vanish();
    assert_eq!(tapped.shim.seen(1).await[0].ending.to_string(), "UNIMPLEMENTED");
}

#[tokio::test]
async fn a_call_that_the_upstream_never_processed_has_the_outcome_refused() {
    let shim = shim();
    let runtime = shim.runtime();
    let (mut client, stream) = tokio::join!(shim.client(), runtime.accept_raw());
    let mut leaving = Wire(stream);
    leaving.expect_hello().await;
    leaving.send(&frame(SETTINGS, 0, 0, &[])).await;
    let answer = client.ask("/a.B/C");
    leaving.next_of(HEADERS).await;
    // The last stream that the upstream processed is none.
    leaving.send(&frame(GOAWAY, 0, 0, &[word(0), word(0)].concat())).await;
    soon(answer).await.unwrap_err();
    assert_eq!(shim.seen(1).await[0].ending.to_string(), "refused");
}

#[tokio::test]
async fn under_load_every_call_is_observed_or_counted_as_dropped() {
    const CALLS: usize = 400;
    let settings = TapConfig { queued_calls: 2, ..TapConfig::default() };
    let (shim, decoder) = tapped(Duration::ZERO, settings);
    let mut tapped = Tapped::new(shim).await;
    // The queue is not drained before a call has been dropped. Whether the decoder keeps up with
    // the later calls depends on the machine.
    for _ in 0..CALLS / 2 {
        tapped.call("/a.B/C", framed(false, b"ask"), framed(false, b"answer")).await;
    }
    tapped.has_dropped(1).await;
    tapped.shim.decode(decoder);
    let answers: Vec<_> = (0..CALLS / 2).map(|_| tapped.client.ask("/a.B/C")).collect();
    for _ in 0..CALLS / 2 {
        tapped.connection.call().await.answer(framed(false, b"answer"));
    }
    for answer in answers {
        let (_, mut body) = head(answer).await;
        read_all(&mut body).await.unwrap();
    }
    let accounted = async {
        let dropped = || usize::try_from(tapped.shim.tap_metrics.observations_dropped()).unwrap();
        while tapped.shim.calls.counts().retained + dropped() < CALLS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (tapped.shim.calls.counts().retained, dropped())
    };
    let (seen, dropped) = soon(accounted).await;
    assert!(seen + dropped == CALLS && dropped > 0, "{seen} seen, {dropped} dropped");
}

#[tokio::test]
async fn a_flood_loses_observations_but_no_calls_and_counts_what_it_loses() {
    const CALLS: u64 = 500;
    let settings = TapConfig { queued_calls: 4, ..TapConfig::default() };
    let (shim, decoder) = tapped(Duration::ZERO, settings);
    let mut tapped = Tapped::new(shim).await;
    // The decoder does not run during these calls.
    for _ in 0..CALLS {
        tapped.call("/a.B/C", framed(false, b"ask"), framed(false, b"answer")).await;
    }
    tapped.has_dropped(CALLS - 4).await;
    assert_eq!(tapped.metric("probeshim_observations_dropped_total"), CALLS - 4);
    tapped.shim.decode(decoder);
    let seen: Vec<u64> = tapped.shim.seen(4).await.iter().map(|call| call.id).collect();
    assert_eq!(seen, [1, 2, 3, 4]);
    // The queue has space again, and the ids of the calls show the gap.
    tapped.call("/a.B/C", framed(false, b"ask"), framed(false, b"answer")).await;
    assert_eq!(tapped.shim.seen(5).await.pop().unwrap().id, CALLS + 1);
    assert_eq!(tapped.metric(r#"probeshim_calls_total{method="other",code="OK"}"#), 5);
}

#[tokio::test]
async fn connections_and_streams_are_counted_while_they_are_open() {
    let mut tapped = Tapped::new(shim()).await;
    let _other = tokio::join!(tapped.shim.client(), tapped.runtime.accept());
    let answer = tapped.client.ask("/a.B/C");
    let call = tapped.connection.call().await;
    let metrics = tapped.shim.relay_metrics.clone();
    assert_eq!((metrics.connections(), metrics.connections_open(), metrics.streams_open()), (2, 2, 1));
    call.answer(framed(false, b"answer"));
    let (_, mut body) = head(answer).await;
    read_all(&mut body).await.unwrap();
    tapped.shim.seen(1).await;
    assert_eq!(metrics.streams_open(), 0);
    tapped.client.vanish();
    let closed = async {
        while metrics.connections_open() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(closed).await;
    assert_eq!(metrics.connections(), 2);
}
