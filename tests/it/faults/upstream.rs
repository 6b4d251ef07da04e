//! The injections of the CRI proxy of Kubernetes' own tests (`test/e2e_node/criproxy_test.go` and
//! others), as rules.

use bytes::Bytes;
use fixtures::http2::headers;
use fixtures::http2::runtime::ok;
use probeshim::cri::v1;

use super::{Faulty, message, outcome};

/// A part of a stream of containers.
fn part(id: &str) -> Bytes {
    let container = v1::Container { id: id.into(), ..Default::default() };
    message(&v1::StreamContainersResponse { containers: vec![container] })
}

/// Calls a method through a rule. The runtime answers with these messages, if it is called. Returns
/// the data, the code, and whether the runtime was called.
async fn injected(method: &str, rule: &str, answers: &[Bytes]) -> (Bytes, String, bool) {
    let mut faulty = Faulty::with(&[rule]).await;
    let response = faulty.client.call(method, Bytes::from_static(b"\0\0\0\0\0"));
    let answered = async {
        let mut call = faulty.connection.call().await;
        let mut body = call.respond.send_response(ok(), false).unwrap();
        for answer in answers {
            body.send_data(answer.clone(), false).unwrap();
        }
        // The client may have its status already.
        let _ = body.send_trailers(headers(&[("grpc-status", "0")]));
    };
    tokio::pin!(answered);
    let outcome = outcome(response);
    tokio::pin!(outcome);
    let ((data, status), was_called) = tokio::select! {
        biased;
        () = &mut answered => (outcome.await, true),
        outcome = &mut outcome => (outcome, false),
    };
    (data, status[0].clone().unwrap(), was_called)
}

#[tokio::test]
async fn every_injection_of_upstreams_tests_is_a_rule() {
    const IMAGE: &str = "/runtime.v1.ImageService/";
    const RUNTIME: &str = "/runtime.v1.RuntimeService/";
    let empty = Bytes::from_static(b"\0\0\0\0\0");
    let (a, b) = (part("a"), part("b"));
    let both: Bytes = [&a[..], &b[..]].concat().into();
    let rows = [
        (IMAGE, "PullImage", "abort(UNKNOWN, 'PullImage failed')", vec![], Bytes::new(), "2", false),
        (IMAGE, "PullImage", "delay(1ms)", vec![empty.clone()], empty.clone(), "0", true),
        (IMAGE, "ImageStatus", "abort(UNKNOWN)", vec![], Bytes::new(), "2", false),
        (RUNTIME, "RuntimeConfig", "abort(UNIMPLEMENTED)", vec![], Bytes::new(), "12", false),
        (
            RUNTIME,
            "StreamContainers",
            "truncate(1, INTERNAL)",
            vec![a.clone(), b.clone()],
            a.clone(),
            "13",
            true,
        ),
        (RUNTIME, "StreamContainers", "delayEach(1ms)", vec![a.clone(), b.clone()], both, "0", true),
        (RUNTIME, "StreamContainers", "abort(UNIMPLEMENTED)", vec![], Bytes::new(), "12", false),
        (RUNTIME, "StreamPodSandboxes", "abort(UNIMPLEMENTED)", vec![], Bytes::new(), "12", false),
    ];
    for (service, method, action, answers, data, code, was_called) in rows {
        let rule = format!("{method} client=probeshim: {action}");
        let result = injected(&format!("{service}{method}"), &rule, &answers).await;
        assert_eq!(result, (data, code.to_owned(), was_called), "{rule}");
    }
}

#[tokio::test]
async fn calls_are_recorded_so_that_a_test_sees_which_method_was_used() {
    let mut faulty = Faulty::with(&["Stream* client=probeshim: abort(UNIMPLEMENTED)"]).await;
    let empty = Bytes::from_static(b"\0\0\0\0\0");
    let stream = faulty.client.call("/runtime.v1.RuntimeService/StreamContainers", empty.clone());
    assert_eq!(outcome(stream).await.1[0].as_deref(), Some("12"));
    let list = faulty.client.call("/runtime.v1.RuntimeService/ListContainers", empty.clone());
    faulty.answer(&empty, empty.clone()).await;
    assert_eq!(outcome(list).await.1[0].as_deref(), Some("0"));
    let calls = faulty.shim.seen(2).await;
    let seen: Vec<String> = calls.iter().map(|call| format!("{} {}", call.method, call.ending)).collect();
    assert_eq!(seen, ["StreamContainers UNIMPLEMENTED", "ListContainers OK"]);
}
