//! Runtimes that violate HTTP/2 or gRPC, or never answer: a call ends in the same way as without
//! probeshim, and the next call is served.

mod case;
mod frames;

use std::slice::from_ref;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::Reason;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use crate::program::{joined, serves};
use case::{Case, End, Fronted, Then, end_of_call};
use fixtures::http2::client::Client;
use fixtures::http2::runtime::ok;
use fixtures::http2::wire::{
    ACK, CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, REFUSED_STREAM, REQUEST, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, Wire, frame, word,
};
use fixtures::http2::{framed, is_served, read_all, send_all};
use fixtures::wait::soon;
use frames::{
    MESSAGE, STATUS_100, STATUS_200, STATUS_500, begun, frames, goaway, head, large_head, message, reset,
    trailers,
};

const PUSH_PROMISE: u8 = 5;

const INTERNAL_ERROR: u32 = 2;
const FLOW_CONTROL_ERROR: u32 = 3;

/// Number of bytes of one answer that probeshim takes before the client reads.
const RESPONSE_WINDOW: usize = 4 << 20;

/// Returns a complete answer with this `grpc-status`.
fn answer(status: u16, code: &str) -> End {
    End::Answer(status, Some(code.to_owned()), MESSAGE.len())
}

#[tokio::test]
async fn a_runtime_that_breaks_the_protocol_ends_the_connection() {
    for case in [
        Case::stays("garbage", vec![0xa5; 4096], End::Lost),
        Case::stays("HTTP/1", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(), End::Lost),
        Case::closes("nothing but the end", Vec::new(), End::Lost),
        Case::closes("the end within a message", frames(&[begun()]), End::Lost),
        Case::closes("GOAWAY after the call, and no answer", frames(&[goaway(1, INTERNAL_ERROR)]), End::Lost),
        Case::stays("a header of 2 MiB, more than the client takes", frames(&[large_head()]), End::Lost),
        Case::stays("DATA on a stream without a call", frames(&[frame(DATA, 0, 7, b"x")]), End::Lost),
        Case::stays("DATA before the head", frames(&[message(0)]), End::Lost),
        Case::stays(
            "PUSH_PROMISE",
            frames(&[frame(PUSH_PROMISE, END_HEADERS, 1, &[&word(2)[..], REQUEST].concat())]),
            End::Lost,
        ),
        Case::stays(
            "a window of the connection beyond 2^31",
            frames(&[frame(WINDOW_UPDATE, 0, 0, &word((1 << 31) - 1))]),
            End::Lost,
        ),
    ] {
        case.is_met().await;
    }
}

#[tokio::test]
async fn a_runtime_that_refuses_or_resets_a_call_ends_that_call() {
    let overflow = frames(&[frame(WINDOW_UPDATE, 0, 1, &word((1 << 31) - 1))]);
    for case in [
        Case::stays("RST_STREAM", frames(&[reset(INTERNAL_ERROR)]), End::Reset(Reason::INTERNAL_ERROR)),
        Case::stays("REFUSED_STREAM", frames(&[reset(REFUSED_STREAM)]), End::Refused),
        Case::stays("GOAWAY before the call", frames(&[goaway(0, NO_ERROR)]), End::Refused),
        Case {
            is_whole: false,
            ..Case::stays(
                "a window of the stream beyond 2^31",
                overflow,
                End::Reset(Reason::FLOW_CONTROL_ERROR),
            )
        },
    ] {
        case.is_met().await;
    }
}

#[tokio::test]
async fn an_unusual_answer_of_the_runtime_reaches_the_client_unchanged() {
    let whole = [head(STATUS_200), message(0), trailers("0")].concat();
    let short = [head(STATUS_200), frame(DATA, END_STREAM, 1, &MESSAGE[..6])].concat();
    for case in [
        Case {
            then: Then::StaysSlowly,
            ..Case::stays("a whole answer, byte by byte", frames(from_ref(&whole)), answer(200, "0"))
        },
        Case::stays(
            "an answer behind a GOAWAY",
            frames(&[goaway(1, NO_ERROR), whole.clone()]),
            answer(200, "0"),
        ),
        Case::stays("fifty heads of 100", frames(&[head(STATUS_100).repeat(50), whole]), answer(200, "0")),
        Case::stays("a message that is not whole", frames(&[short]), End::Answer(200, None, 6)),
        Case::stays(
            "a grpc-status that is no number",
            frames(&[head(STATUS_200), message(0), trailers("what")]),
            answer(200, "what"),
        ),
        Case::stays(
            "HTTP 500",
            frames(&[head(STATUS_500), message(END_STREAM)]),
            End::Answer(500, None, MESSAGE.len()),
        ),
    ] {
        case.is_met().await;
    }
}

/// A runtime that does not answer: bytes that it sends before it reads the call, and bytes before
/// the client gives up.
struct Silent {
    name: &'static str,
    hello: Vec<u8>,
    begins: Vec<u8>,
}

#[tokio::test]
async fn a_call_without_an_answer_lasts_until_its_client_gives_up() {
    let settings = |window: u32| frame(SETTINGS, 0, 0, &[&[0, 4][..], &word(window)].concat());
    let all = (1 << 31) - 1;
    // The message exceeds the capacity of all sockets and windows.
    let message = framed(false, &vec![7; 8 << 20]);
    for Silent { name, hello, begins } in [
        Silent { name: "never says a word", hello: Vec::new(), begins: Vec::new() },
        Silent { name: "never answers", hello: frames(&[]), begins: Vec::new() },
        Silent { name: "never goes on", hello: frames(&[]), begins: begun() },
        Silent { name: "grants no window", hello: settings(0), begins: Vec::new() },
        Silent {
            name: "reads no further",
            hello: [settings(all), frame(WINDOW_UPDATE, 0, 0, &word(all - 65_535))].concat(),
            begins: Vec::new(),
        },
    ] {
        let fronted = Fronted::start().await;
        let mut client = fronted.client().await;
        let mut wire = Wire(fronted.runtime.accept_raw().await);
        wire.expect_hello().await;
        wire.send(&hello).await;
        // The runtime's settings take effect when they are acknowledged.
        while !hello.is_empty() && wire.next_of(SETTINGS).await.flags & ACK == 0 {}
        let mut call = Box::pin(end_of_call(&mut client, message.clone()));
        assert_eq!((&mut call).now_or_never(), None, "{name}");
        assert_eq!(wire.next_of(HEADERS).await.stream, 1, "{name}");
        wire.send(&begins).await;
        serves(&fronted.shim, &fronted.runtime).await;
        assert_eq!((&mut call).now_or_never(), None, "{name}: the call has ended");
        drop(call);
        let mut data = 0;
        let reset = loop {
            match wire.next().await.unwrap_or_else(|| panic!("{name}: the connection ended")) {
                frame if frame.kind == RST_STREAM => break frame,
                frame if frame.kind == DATA => data += frame.payload.len(),
                _ => {}
            }
        };
        assert_eq!((reset.stream, &reset.payload[..]), (1, &word(CANCEL)[..]), "{name}");
        assert!(name != "grants no window" || data == 0, "{data} bytes were sent without a window");
        serves(&fronted.shim, &fronted.runtime).await;
        // The runtime keeps its connection open, and the client disconnects.
        drop(client);
        fronted.assert_unharmed(name).await;
    }
}

#[tokio::test]
async fn an_endless_answer_ends_when_its_client_cancels() {
    let mut fronted = Fronted::start().await;
    let (mut client, mut connection) = joined(&fronted.shim, &fronted.runtime).await;
    let response = client.ask("/a.B/C");
    let mut call = connection.call().await;
    let mut answer = call.respond.send_response(ok(), false).unwrap();
    let sending = async {
        let chunk = Bytes::from(vec![7; 64 << 10]);
        while send_all(&mut answer, chunk.clone(), false).await.is_ok() {}
    };
    let reading = async {
        let mut body = soon(response).await.unwrap().into_body();
        let mut bytes = 0;
        // The answer exceeds all windows together.
        while bytes < 100 << 20 {
            let chunk = soon(body.data()).await.unwrap().unwrap();
            body.flow_control().release_capacity(chunk.len()).unwrap();
            bytes += chunk.len();
        }
        is_served(&mut fronted.bystander.0, &mut fronted.bystander.1).await;
    };
    tokio::join!(sending, reading);
    let reset = soon(std::future::poll_fn(|cx| answer.poll_reset(cx))).await.unwrap();
    assert_eq!(reset, Reason::CANCEL);
    drop((client, answer, call));
    fronted.assert_unharmed("an answer without end").await;
}

/// Data that the client has not read yet is delivered first.
#[tokio::test]
async fn an_answer_beyond_its_flow_control_window_is_cut_off() {
    let fronted = Fronted::start().await;
    let mut client = fronted.client().await;
    let response = client.ask("/a.B/C");
    let mut wire = Wire(fronted.runtime.accept_raw().await);
    wire.expect_hello().await;
    wire.next_of(DATA).await;
    wire.send(&frames(&[head(STATUS_200)])).await;
    let stream = wire.0.into_std().unwrap();
    let mut writer = UnixStream::from_std(stream.try_clone().unwrap()).unwrap();
    wire = Wire(UnixStream::from_std(stream).unwrap());
    let chunk = frame(DATA, 0, 1, &[7; 16 << 10]);
    let reset = tokio::select! {
        reset = wire.next_of(RST_STREAM) => reset,
        () = async { while writer.write_all(&chunk).await.is_ok() {} } => panic!("the connection ended"),
    };
    assert_eq!((reset.stream, &reset.payload[..]), (1, &word(FLOW_CONTROL_ERROR)[..]));
    let mut body = soon(response).await.unwrap().into_body();
    let (bytes, error) = read_all(&mut body).await.expect_err("a cut-off answer looked whole");
    assert_eq!(error.reason(), Some(Reason::FLOW_CONTROL_ERROR));
    assert!((1..=RESPONSE_WINDOW).contains(&bytes.len()), "{} bytes came", bytes.len());
    serves(&fronted.shim, &fronted.runtime).await;
    drop((client, body));
    fronted.assert_unharmed("an answer beyond its window").await;
}

/// If the runtime disconnects before it has read the call, the call may be lost or refused. Calls
/// are served once the runtime answers again.
#[tokio::test]
async fn a_runtime_that_closes_each_connection_immediately_ends_each_call() {
    let fronted = Fronted::start().await;
    for round in 0..20 {
        let asking = async {
            let stream = UnixStream::connect(&fronted.shim.socket).await.unwrap();
            match Client::try_over(stream).await {
                Ok(mut client) => soon(end_of_call(&mut client, framed(false, b"ask"))).await,
                Err(_) => End::Lost,
            }
        };
        let closing = async { drop(fronted.runtime.accept_raw().await) };
        let (end, ()) = tokio::join!(asking, closing);
        assert!([End::Lost, End::Refused].contains(&end), "{round}: {end:?}");
    }
    fronted.assert_unharmed("a runtime that closes").await;
}
