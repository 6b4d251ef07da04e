//! The end of a call on one side ends the call in the same way on the other side.

use bytes::Bytes;
use fixtures::http2::client::Client;
use fixtures::http2::runtime::Connection;
use fixtures::http2::{answered, client, headers, read_all, request, runtime, shim};
use fixtures::wait::soon;
use h2::{Reason, RecvStream, SendStream};

const REASONS: [Reason; 14] = [
    Reason::NO_ERROR,
    Reason::PROTOCOL_ERROR,
    Reason::INTERNAL_ERROR,
    Reason::FLOW_CONTROL_ERROR,
    Reason::SETTINGS_TIMEOUT,
    Reason::STREAM_CLOSED,
    Reason::FRAME_SIZE_ERROR,
    Reason::REFUSED_STREAM,
    Reason::CANCEL,
    Reason::COMPRESSION_ERROR,
    Reason::CONNECT_ERROR,
    Reason::ENHANCE_YOUR_CALM,
    Reason::INADEQUATE_SECURITY,
    Reason::HTTP_1_1_REQUIRED,
];

/// Makes a call whose answer has begun, and returns the runtime's stream and the client's.
async fn half_answered(client: &mut Client, runtime: &mut Connection) -> (SendStream<Bytes>, RecvStream) {
    let response = client.ask("/a.B/C");
    let mut call = runtime.call().await;
    let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
    answer.send_data(Bytes::from_static(b"half"), false).unwrap();
    let (_, mut body) = client::head(response).await;
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "half");
    (answer, body)
}

#[tokio::test]
async fn a_cancel_before_the_answer_reaches_upstream() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    let mut call = runtime.call().await;
    drop(response);
    assert_eq!(call.reset().await, Reason::CANCEL);
}

#[tokio::test]
async fn a_cancel_during_the_request_reaches_upstream() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let (response, mut body) = client.start(request("/a.B/C"), false);
    body.send_data(Bytes::from_static(b"half of "), false).unwrap();
    let mut call = runtime.call().await;
    assert_eq!(soon(call.request.body_mut().data()).await.unwrap().unwrap(), "half of ");
    body.send_reset(Reason::CANCEL);
    drop(response);
    let (_, error) = read_all(call.request.body_mut()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::CANCEL));
}

#[tokio::test]
async fn a_cancel_during_the_answer_reaches_upstream() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let (mut answer, body) = half_answered(&mut client, &mut runtime).await;
    drop(body);
    let reset = soon(std::future::poll_fn(|cx| answer.poll_reset(cx))).await.unwrap();
    assert_eq!(reset, Reason::CANCEL);
}

#[tokio::test]
async fn every_reset_code_of_a_client_reaches_the_upstream() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    for reason in REASONS {
        let (_response, mut body) = client.start(request("/a.B/C"), false);
        let mut call = runtime.call().await;
        body.send_reset(reason);
        assert_eq!(call.reset().await, reason);
    }
}

#[tokio::test]
async fn every_reset_code_of_the_upstream_reaches_the_client_before_the_answer() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    for reason in REASONS {
        let response = client.ask("/a.B/C");
        runtime.call().await.respond.send_reset(reason);
        let error = soon(response).await.unwrap_err();
        assert_eq!((error.reason(), error.is_reset(), error.is_remote()), (Some(reason), true, true));
    }
}

#[tokio::test]
async fn every_reset_code_of_the_upstream_ends_a_partial_answer() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    for reason in REASONS {
        let (mut answer, mut body) = half_answered(&mut client, &mut runtime).await;
        answer.send_reset(reason);
        let (rest, error) = read_all(&mut body).await.expect_err("a cut-off answer looked whole");
        assert_eq!((rest.len(), error.reason()), (0, Some(reason)));
    }
}

#[tokio::test]
async fn an_answer_cut_off_by_a_lost_connection_is_never_complete() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let (_answer, mut body) = half_answered(&mut client, &mut runtime).await;
    runtime.vanish();
    let (_, error) = read_all(&mut body).await.expect_err("a cut-off answer looked whole");
    assert!(!error.is_reset(), "the client must see a lost connection, as without a relay: {error}");
}

#[tokio::test]
async fn a_call_on_a_broken_connection_is_never_sent_twice() {
    let shim = shim();
    let (mut client, mut connection, runtime) = shim.joined().await;
    let response = client.ask("/a.B/CreateContainer");
    let call = connection.call().await;
    connection.vanish();
    let error = soon(response).await.unwrap_err();
    assert_ne!(
        error.reason(),
        Some(Reason::REFUSED_STREAM),
        "REFUSED_STREAM would let the client repeat the call"
    );
    assert!(!error.is_reset(), "{error}");
    drop(call);
    // The client's connection has ended, and the relay has not connected to the runtime again.
    let _ = client.closed().await;
    assert!(!runtime.is_dialled());
}

#[tokio::test]
async fn an_answer_may_end_before_its_request() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let (response, mut body) = client.start(request("/a.B/C"), false);
    body.send_data(Bytes::from_static(b"first"), false).unwrap();
    let mut call = runtime.call().await;
    assert_eq!(soon(call.request.body_mut().data()).await.unwrap().unwrap(), "first");
    let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
    answer.send_trailers(headers(&[("grpc-status", "0")])).unwrap();
    let (_, mut download) = client::head(response).await;
    assert!(read_all(&mut download).await.unwrap().1.is_some());
    // The rest of the request still reaches the runtime.
    body.send_data(Bytes::from_static(b"second"), true).unwrap();
    assert_eq!(call.body().await, "second");
}

#[tokio::test]
async fn a_request_that_the_upstream_declines_is_stopped() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let (response, mut body) = client.start(request("/a.B/C"), false);
    let mut call = runtime.call().await;
    let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
    answer.send_trailers(headers(&[("grpc-status", "8")])).unwrap();
    // When the request's stream is dropped, h2 resets the rest of the request with NO_ERROR, as
    // gRPC servers do.
    drop((call, answer));
    let (_, mut download) = client::head(response).await;
    assert_eq!(read_all(&mut download).await.unwrap().1.unwrap()["grpc-status"], "8");
    let declined = soon(std::future::poll_fn(|cx| body.poll_reset(cx))).await.unwrap();
    assert_eq!(declined, Reason::NO_ERROR);
}

#[tokio::test]
async fn the_upstream_connection_is_closed_with_its_client() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let _response = client.ask("/a.B/C");
    let _call = runtime.call().await;
    client.vanish();
    let _ = runtime.closed().await;
}

#[tokio::test]
async fn the_client_connection_is_closed_with_its_upstream() {
    let shim = shim();
    let (client, runtime, _listener) = shim.joined().await;
    runtime.vanish();
    let _ = client.closed().await;
}

#[tokio::test]
async fn clients_are_refused_while_the_upstream_is_down_and_served_afterwards() {
    let shim = shim();
    for _ in 0..3 {
        let mut refused = shim.connect().await;
        let end = soon(tokio::io::AsyncReadExt::read(&mut refused, &mut [0; 64])).await;
        assert!(matches!(end, Ok(0) | Err(_)), "the relay sent bytes without an upstream");
    }
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    runtime.call().await.answer("back");
    assert_eq!(answered(response).await, "back");
}
