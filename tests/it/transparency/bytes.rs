//! Messages, metadata and status pass byte for byte.

use bytes::Bytes;
use fixtures::http2::wire::{self, HEADERS, Wire, frame};
use fixtures::http2::{client, framed, headers, read_all, request, runtime, send_all, shim};
use fixtures::wait::soon;
use http::{HeaderValue, Method, Request, Response, Version};

/// Sends `request` with `body` through the relay and returns the request that arrived.
async fn arrived(request: Request<()>, body: Option<Bytes>) -> (http::request::Parts, Bytes) {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let (_response, mut stream) = client.start(request, body.is_none());
    if let Some(body) = body {
        stream.send_data(body, true).unwrap();
    }
    let mut call = runtime.call().await;
    let body = call.body().await;
    (call.request.into_parts().0, body)
}

#[tokio::test]
async fn unknown_services_and_methods_pass() {
    let (head, _) = arrived(request("/some.future.v9.Service/DoWhatNobodyKnows"), None).await;
    assert_eq!(head.uri.path(), "/some.future.v9.Service/DoWhatNobodyKnows");
    assert_eq!(head.method, Method::POST);
    assert_eq!(head.version, Version::HTTP_2);
}

#[tokio::test]
async fn request_metadata_passes_unchanged() {
    let mut sent = request("/a.B/C");
    for (name, value) in [
        ("grpc-timeout", "1500m"),
        ("grpc-encoding", "gzip"),
        ("user-agent", "grpc-go/1.72.0"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-twice", "first"),
        ("x-twice", "second, with a comma"),
        ("x-twice", "first"),
        ("x-some-bin", "AAEC/w"),
        ("x-empty", ""),
    ] {
        sent.headers_mut().append(name, HeaderValue::from_static(value));
    }
    sent.headers_mut().append("x-opaque", HeaderValue::from_bytes(b"caf\xc3\xa9 \xff").unwrap());
    let expected = sent.headers().clone();
    let (head, _) = arrived(sent, Some(Bytes::from_static(b"x"))).await;
    assert_eq!(&head.headers, &expected);
}

#[tokio::test]
async fn a_request_without_a_body_gains_no_content_length() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let sent = request("/a.B/C");
    let expected = sent.headers().clone();
    let (_response, _body) = client.start(sent, true);
    let call = runtime.call().await;
    assert_eq!(call.request.headers(), &expected);
    assert!(
        call.request.body().is_end_stream(),
        "END_STREAM arrived with the headers and must be sent with them"
    );
}

#[tokio::test]
async fn a_request_without_an_authority_is_served_without_one() {
    let shim = shim();
    let runtime = shim.runtime();
    let mut client = Wire(shim.connect().await);
    let block = b"\x83\x86\x44\x05/a.B/";
    let head = frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 1, block);
    client.send(&[wire::HELLO, &head].concat()).await;
    let mut call = runtime.accept().await.call().await;
    assert_eq!((call.request.uri().path(), call.request.uri().authority()), ("/a.B/", None));
    assert!(call.request.headers().is_empty());
    call.respond.send_response(runtime::ok(), true).unwrap();
    assert_eq!(client.next_of(HEADERS).await.stream, 1);
}

#[tokio::test]
async fn timeouts_of_every_unit_pass_unchanged() {
    for timeout in ["99999999H", "1M", "120S", "1m", "500000u", "1n"] {
        let mut sent = request("/a.B/C");
        sent.headers_mut().insert("grpc-timeout", HeaderValue::from_static(timeout));
        let (head, _) = arrived(sent, None).await;
        assert_eq!(head.headers["grpc-timeout"], timeout);
    }
}

#[tokio::test]
async fn unknown_fields_and_a_compression_flag_pass_byte_for_byte() {
    // Field 15000 is undefined, and the bytes of the compressed message are not valid gzip.
    let message = framed(true, b"\xc2\xa9\x07\x05hello\x1f\x8b not gzip");
    let (_, body) = arrived(request("/runtime.v1.RuntimeService/Version"), Some(message.clone())).await;
    assert_eq!(body, message);
}

#[tokio::test]
async fn initial_and_trailing_metadata_of_an_answer_pass() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    let mut call = runtime.call().await;

    let mut head = runtime::ok();
    head.headers_mut().extend(headers(&[
        ("x-initial", "one"),
        ("x-initial", "two"),
        ("x-initial-bin", "AAEC"),
    ]));
    let initial = head.headers().clone();
    let trailing =
        headers(&[("grpc-status", "5"), ("grpc-message", "not%20here"), ("x-t", "1"), ("x-t", "2")]);
    let mut body = call.respond.send_response(head, false).unwrap();
    body.send_data(framed(true, b"answer"), false).unwrap();
    body.send_trailers(trailing.clone()).unwrap();

    let (head, mut body) = client::head(response).await;
    assert_eq!(head.headers(), &initial);
    let (message, trailers) = read_all(&mut body).await.unwrap();
    assert_eq!(message, framed(true, b"answer"));
    assert_eq!(&trailers.unwrap(), &trailing);
}

#[tokio::test]
async fn a_trailers_only_answer_stays_trailers_only() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    let mut call = runtime.call().await;
    let mut only = runtime::ok();
    only.headers_mut().extend(headers(&[("grpc-status", "12"), ("grpc-message", "unknown method")]));
    let expected = only.headers().clone();
    call.respond.send_response(only, true).unwrap();
    let (head, body) = client::head(response).await;
    assert_eq!(head.headers(), &expected);
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn long_status_messages_and_details_pass() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/C");
    let mut call = runtime.call().await;
    let (message, details) = ("m".repeat(64 << 10), "Z".repeat(64 << 10));
    let trailing =
        headers(&[("grpc-status", "2"), ("grpc-message", &message), ("grpc-status-details-bin", &details)]);
    let mut body = call.respond.send_response(runtime::ok(), false).unwrap();
    body.send_trailers(trailing.clone()).unwrap();
    let (_, mut body) = client::head(response).await;
    assert_eq!(&read_all(&mut body).await.unwrap().1.unwrap(), &trailing);
}

#[tokio::test]
async fn answers_that_are_not_grpc_pass() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.call("/", Bytes::from_static(b"GET, in spirit"));
    let mut call = runtime.call().await;
    let teapot = Response::builder().status(418).header("x-date", "none is added").body(()).unwrap();
    let expected = teapot.headers().clone();
    call.respond.send_response(teapot, true).unwrap();
    let (head, _) = client::head(response).await;
    assert_eq!(head.status(), 418);
    assert_eq!(head.headers(), &expected);
}

#[tokio::test]
async fn messages_of_32_mib_pass_both_ways() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let message: Bytes = (0_u32..8 << 20).flat_map(u32::to_be_bytes).collect::<Vec<u8>>().into();
    assert_eq!(message.len(), 32 << 20);
    let (response, mut up) = client.start(request("/a.B/C"), false);
    let sent = message.clone();
    let upload = tokio::spawn(async move { send_all(&mut up, sent, true).await.unwrap() });
    let mut call = runtime.call().await;
    let body = call.body().await;
    assert!(body == message, "the request was changed");
    let mut down = call.respond.send_response(runtime::ok(), false).unwrap();
    let download = tokio::spawn(async move { send_all(&mut down, body, true).await.unwrap() });
    let (_, mut body) = client::head(response).await;
    assert!(read_all(&mut body).await.unwrap().0 == message, "the response was changed");
    soon(upload).await.unwrap();
    soon(download).await.unwrap();
}
