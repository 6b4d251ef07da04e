//! Ends of connections: GOAWAY from either side, and the drain of the relay.

use std::time::Duration;

use fixtures::http2::runtime::ok;
use fixtures::http2::wire::{self, GOAWAY, HEADERS, RST_STREAM, SETTINGS, Wire, frame, word};
use fixtures::http2::{answered, client, read_all, shim, shim_with};
use fixtures::wait::soon;
use h2::Reason;

#[tokio::test]
async fn a_draining_upstream_finishes_calls_and_its_goaway_reaches_the_client() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    let call = runtime.call().await;
    runtime.go_away();
    // The client makes no more calls on this connection after the GOAWAY.
    client.told_to_leave().await;
    call.answer("finished");
    assert_eq!(answered(response).await, "finished");
    let _ = soon(client.closed()).await;
    let _ = soon(runtime.closed()).await;
}

#[tokio::test]
async fn a_client_that_sends_goaway_closes_its_upstream_connection() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    runtime.call().await.answer("done");
    let (_, mut body) = client::head(response).await;
    read_all(&mut body).await.unwrap();
    drop(body);
    // When the last handle is dropped, h2 sends GOAWAY and closes the connection.
    let client::Client { calls, .. } = client;
    drop(calls);
    let _ = soon(runtime.closed()).await;
}

/// Returns the frame of an empty call.
fn call(stream: u32) -> Vec<u8> {
    frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, stream, wire::REQUEST)
}

#[tokio::test]
async fn streams_that_a_draining_upstream_did_not_process_are_refused_after_goaway() {
    let shim = shim();
    let runtime = shim.runtime();
    let mut client = Wire(shim.connect().await);
    client.send(&[wire::HELLO, &call(1), &call(3)].concat()).await;
    let mut upstream = Wire(runtime.accept_raw().await);
    upstream.expect_hello().await;
    upstream.send(&frame(SETTINGS, 0, 0, &[])).await;
    upstream.next_of(HEADERS).await;
    upstream.next_of(HEADERS).await;
    // The runtime has processed the first stream, but not the second.
    upstream.send(&frame(GOAWAY, 0, 0, &[word(1), word(wire::NO_ERROR)].concat())).await;

    let mut seen = Vec::new();
    let reset = loop {
        let next = client.next().await.expect("the connection ended instead");
        if next.kind == RST_STREAM {
            break next;
        }
        seen.push(next.kind);
    };
    assert_eq!((reset.stream, reset.payload.as_slice()), (3, word(wire::REFUSED_STREAM).as_slice()));
    assert!(
        seen.contains(&GOAWAY),
        "without GOAWAY the client would repeat the call on this connection: {seen:?}"
    );

    // The first stream still gets its answer.
    upstream.send(&frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 1, b"\x88")).await;
    assert_eq!(client.next_of(HEADERS).await.stream, 1);
}

#[tokio::test]
async fn the_connection_error_of_the_upstream_reaches_the_client() {
    let shim = shim();
    let listener = shim.runtime();
    let mut client = Wire(shim.connect().await);
    client.send(wire::HELLO).await;
    let mut runtime = listener.accept().await;
    // The second answer proves that the settings of both sides are acknowledged. Closing a socket
    // with unread bytes would reset it, and the reset can overtake the GOAWAY.
    for stream in [1, 3] {
        client.send(&call(stream)).await;
        runtime.call().await.respond.send_response(ok(), true).unwrap();
        client.next_of(HEADERS).await;
    }
    runtime.end(Reason::ENHANCE_YOUR_CALM);
    assert_eq!(client.ended_with().await, u32::from(Reason::ENHANCE_YOUR_CALM));
}

#[tokio::test]
async fn the_drain_finishes_calls_and_refuses_new_clients() {
    let mut shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    let call = runtime.call().await;
    shim.drain();
    client.told_to_leave().await;
    call.answer("finished");
    assert_eq!(answered(response).await, "finished");
    assert_eq!(shim.ended().await.aborted, 0);
    let _ = soon(client.closed()).await;
}

#[tokio::test]
async fn idle_and_half_open_clients_do_not_delay_the_drain() {
    let mut shim = shim();
    let (client, _connection, _runtime) = shim.joined().await;
    let silent = shim.connect().await;
    let mut halfway = Wire(shim.connect().await);
    halfway.send(&wire::HELLO[..30]).await;
    shim.drain();
    assert_eq!(shim.ended().await.aborted, 0);
    let _ = soon(client.closed()).await;
    drop(silent);
}

#[tokio::test]
async fn a_client_that_does_not_acknowledge_goaway_does_not_delay_the_drain() {
    let mut shim = shim_with(Duration::from_secs(3600));
    let runtime = shim.runtime();
    let mut client = Wire(shim.connect().await);
    client.send(&[wire::HELLO, &call(1)].concat()).await;
    let mut connection = runtime.accept().await;
    connection.call().await.respond.send_response(ok(), true).unwrap();
    client.next_of(HEADERS).await;
    shim.drain();
    assert_eq!(shim.ended().await.aborted, 0);
}

#[tokio::test]
async fn a_call_that_outlasts_the_drain_timeout_is_aborted() {
    let mut shim = shim_with(Duration::from_millis(50));
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    let call = runtime.call().await;
    shim.drain();
    assert_eq!(shim.ended().await.aborted, 1);
    soon(response).await.unwrap_err();
    drop(call);
}
