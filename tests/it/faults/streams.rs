//! Actions on the messages of streams.

use bytes::Bytes;
use fixtures::http2::client::head;
use fixtures::http2::runtime::ok;
use fixtures::http2::{framed, headers, is_served, read_all, send_all};
use fixtures::wait::soon;
use h2::RecvStream;
use probeshim::cri::v1;

use super::{EVENTS, Faulty, fine, message, outcome, status};

/// Returns an event of a container.
fn event(container: &str) -> Bytes {
    message(&v1::ContainerEventResponse { container_id: container.into(), ..Default::default() })
}

/// Makes the runtime send events to a client, each in its own DATA frame. Returns what the client
/// receives.
async fn streamed(rule: &str, events: &[&str]) -> (Bytes, [Option<String>; 3]) {
    let mut faulty = Faulty::with(&[rule]).await;
    let response = faulty.client.call(EVENTS, message(&v1::GetEventsRequest {}));
    let mut call = faulty.connection.call().await;
    call.body().await;
    let mut body = call.respond.send_response(ok(), false).unwrap();
    for container in events {
        body.send_data(event(container), false).unwrap();
    }
    body.send_trailers(headers(&[("grpc-status", "0")])).unwrap();
    let received = outcome(response).await;
    let action = rule.split(": ").last().unwrap();
    assert_eq!(faulty.marks(1).await, [format!("rule-1 {action}")]);
    received
}

/// Reads a stream until it has sent `length` bytes.
async fn beginning(body: &mut RecvStream, length: usize) -> Vec<u8> {
    let mut data = Vec::new();
    while data.len() < length {
        let chunk = soon(body.data()).await.unwrap().unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        data.extend_from_slice(&chunk);
    }
    data
}

fn events(containers: &[&str]) -> Bytes {
    containers.iter().map(|container| event(container)).collect::<Vec<_>>().concat().into()
}

#[tokio::test]
async fn a_stream_is_truncated_with_a_status() {
    let rule = "GetContainerEvents client=probeshim: truncate(2, INTERNAL)";
    let (data, status) = streamed(rule, &["a", "b", "c"]).await;
    assert_eq!((data, status[0].as_deref()), (events(&["a", "b"]), Some("13")));
    let rule = "GetContainerEvents client=probeshim: truncate(0)";
    assert_eq!(streamed(rule, &["a", "b"]).await, (Bytes::new(), fine()));
}

#[tokio::test]
async fn the_messages_of_a_stream_are_repeated_delayed_and_reversed() {
    for (action, expected) in [
        ("repeat(2)", events(&["a", "a", "b", "b", "c", "c"])),
        ("delayEach(1ms)", events(&["a", "b", "c"])),
        ("reverse(2)", events(&["b", "a", "c"])),
    ] {
        let rule = format!("GetContainerEvents client=probeshim: {action}");
        assert_eq!(streamed(&rule, &["a", "b", "c"]).await, (expected, fine()), "{action}");
    }
}

#[tokio::test]
async fn each_message_of_a_stream_is_edited() {
    let rule = "GetContainerEvents client=probeshim: set(response.container_id=x)";
    assert_eq!(streamed(rule, &["a", "b"]).await, (events(&["x", "x"]), fine()));
}

#[tokio::test]
async fn the_messages_of_a_stream_pass_one_by_one() {
    let mut faulty = Faulty::with(&["GetContainerEvents client=probeshim: repeat(2)"]).await;
    let response = faulty.client.call(EVENTS, message(&v1::GetEventsRequest {}));
    let call = faulty.connection.call().await;
    let mut call = call;
    let mut body = call.respond.send_response(ok(), false).unwrap();
    body.send_data(event("a"), false).unwrap();
    let (_, mut received) = head(response).await;
    let both = events(&["a", "a"]);
    let data = beginning(&mut received, both.len()).await;
    assert_eq!(data, both, "the stream has not ended");
    body.send_trailers(headers(&[("grpc-status", "0")])).unwrap();
    let (rest, trailers) = read_all(&mut received).await.unwrap();
    assert!(rest.is_empty());
    assert_eq!(status(&trailers.unwrap()), fine());
}

#[tokio::test]
async fn a_client_that_cancels_a_changed_stream_cancels_it_at_the_runtime() {
    let mut faulty = Faulty::with(&["GetContainerEvents client=probeshim: delayEach(1h)"]).await;
    let response = faulty.client.call(EVENTS, message(&v1::GetEventsRequest {}));
    let mut call = faulty.connection.call().await;
    let mut body = call.respond.send_response(ok(), false).unwrap();
    body.send_data(event("a"), false).unwrap();
    let (_, received) = head(response).await;
    drop(received);
    let reset = soon(std::future::poll_fn(|cx| body.poll_reset(cx))).await.unwrap();
    assert_eq!(reset, h2::Reason::CANCEL);
}

#[tokio::test]
async fn the_messages_of_a_stream_pass_unchanged_once_the_rule_has_ended() {
    let mut faulty = Faulty::with(&["GetContainerEvents client=probeshim: repeat(2)"]).await;
    let response = faulty.client.call(EVENTS, message(&v1::GetEventsRequest {}));
    let mut call = faulty.connection.call().await;
    let mut body = call.respond.send_response(ok(), false).unwrap();
    body.send_data(event("a"), false).unwrap();
    let (_, mut received) = head(response).await;
    let twice = events(&["a", "a"]);
    let data = beginning(&mut received, twice.len()).await;
    faulty.rules.clear(&[], "the test").unwrap();
    body.send_data(event("b"), false).unwrap();
    body.send_trailers(headers(&[("grpc-status", "0")])).unwrap();
    let (rest, trailers) = read_all(&mut received).await.unwrap();
    assert_eq!((data, rest, status(&trailers.unwrap())), (twice.to_vec(), event("b"), fine()));
}

#[tokio::test]
async fn a_changed_stream_continues_after_the_client_has_read_nothing_for_a_while() {
    let mut faulty = Faulty::with(&["GetContainerEvents client=probeshim: repeat(2)"]).await;
    let response = faulty.client.call(EVENTS, message(&v1::GetEventsRequest {}));
    let mut call = faulty.connection.call().await;
    let mut body = call.respond.send_response(ok(), false).unwrap();
    // More than the windows and the backlog of a connection take.
    let large = framed(false, &vec![7; 1 << 20]);
    let sent = large.clone();
    let sending = tokio::spawn(async move {
        for _ in 0..12 {
            send_all(&mut body, sent.clone(), false).await.unwrap();
        }
        body.send_trailers(headers(&[("grpc-status", "0")])).unwrap();
    });
    // The client answers other calls meanwhile, whose data take room in the backlog too.
    is_served(&mut faulty.client, &mut faulty.connection).await;
    let (_, mut received) = head(response).await;
    let (data, trailers) = read_all(&mut received).await.unwrap();
    sending.await.unwrap();
    assert_eq!((data.len(), status(&trailers.unwrap())), (24 * large.len(), fine()));
}
