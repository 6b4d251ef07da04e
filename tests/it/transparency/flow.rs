//! Many streams, slow readers, and long-lived streams.

use std::time::Duration;

use bytes::Bytes;
use fixtures::http2::wire::{self, HEADERS, Wire, frame, word};
use fixtures::http2::{answered, client, headers, read_all, request, runtime, send_all, shim};
use fixtures::wait::soon;
use h2::Reason;
use tokio::sync::mpsc;

/// Maximum number of bytes that the relay may hold for one stream without a reader: its window,
/// unwritten bytes, and a reserve.
const HELD: usize = (4 << 20) + (1 << 20);

#[tokio::test]
async fn a_stalled_reader_holds_little_memory_and_delays_no_other_call() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let stalled = client.ask("/a.B/Stalled");
    let mut call = runtime.call().await;
    let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
    let (progress, mut sent) = mpsc::unbounded_channel();
    let flood = tokio::spawn(async move {
        let chunk = Bytes::from(vec![0; 64 << 10]);
        loop {
            answer.reserve_capacity(chunk.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| answer.poll_capacity(cx)).await else { return };
            if answer.send_data(chunk.slice(..room.min(chunk.len())), false).is_err() {
                return;
            }
            let _ = progress.send(room.min(chunk.len()));
        }
    });
    let (_, unread) = client::head(stalled).await;

    // Calls on the same connection are answered in the meantime, including calls with large
    // answers.
    let large = Bytes::from(vec![7; 8 << 20]);
    for _ in 0..4 {
        let response = client.ask("/a.B/Large");
        let mut call = runtime.call().await;
        let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
        let sent = large.clone();
        let sender = tokio::spawn(async move { send_all(&mut answer, sent, true).await.unwrap() });
        let (_, mut body) = client::head(response).await;
        assert!(read_all(&mut body).await.unwrap().0 == large);
        soon(sender).await.unwrap();
    }
    let mut held = 0;
    while let Ok(more) = sent.try_recv() {
        held += more;
    }
    assert!(held > 64 << 10, "the runtime sent too little: {held}");
    assert!(held < HELD, "the relay took {held} bytes that the client does not read");
    drop(unread);
    soon(flood).await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_slowly_receives_the_resets_of_other_streams() {
    let shim = shim();
    let listener = shim.runtime();
    let mut client = Wire(shim.connect().await);
    let largest = i32::MAX.cast_unsigned();
    let window = frame(wire::SETTINGS, 0, 0, &[&[0, 4][..], &word(largest)].concat());
    let more = frame(wire::WINDOW_UPDATE, 0, 0, &word(largest - 65_535));
    let call = |stream| frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, stream, wire::REQUEST);
    client.send(&[&wire::HELLO[..24], &window, &more, &call(1), &call(3), &call(5)].concat()).await;
    let mut runtime = listener.accept().await;
    let (mut flood, mut before, mut within) =
        (runtime.call().await, runtime.call().await, runtime.call().await);
    let mut answer = flood.respond.send_response(runtime::ok(), false).unwrap();
    let flooding = tokio::spawn(async move {
        while send_all(&mut answer, Bytes::from(vec![0; 1 << 20]), false).await.is_ok() {}
    });
    let mut begun = within.respond.send_response(runtime::ok(), false).unwrap();
    begun.send_data(Bytes::from_static(b"half"), false).unwrap();
    let mut resets = soon(async {
        let (mut resets, mut read) = (Vec::new(), 0);
        while resets.len() < 2 {
            let next = client.next().await.expect("the connection ended instead");
            if next.kind == wire::RST_STREAM {
                resets.push(next.stream);
            }
            let before_this = read;
            read += next.payload.len();
            // After this many bytes, the socket has been full for a while.
            if before_this < 8 << 20 && read >= 8 << 20 {
                before.respond.send_reset(Reason::INTERNAL_ERROR);
                begun.send_reset(Reason::INTERNAL_ERROR);
            }
            // The client reads more slowly than the runtime writes, because this test is about slow
            // clients.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        resets
    })
    .await;
    resets.sort_unstable();
    assert_eq!(resets, [3, 5]);
    flooding.abort();
}

#[tokio::test]
async fn a_thousand_streams_can_be_open_at_the_same_time() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let responses: Vec<_> = (0..1000).map(|n| client.ask(&format!("/a.B/{n}"))).collect();
    let mut calls = Vec::new();
    for _ in 0..1000 {
        calls.push(runtime.call().await);
    }
    for call in calls.into_iter().rev() {
        let path = call.request.uri().path().to_owned();
        call.answer(path);
    }
    for (n, response) in responses.into_iter().enumerate() {
        assert_eq!(answered(response).await, format!("/a.B/{n}"));
    }
}

#[tokio::test]
async fn five_thousand_cancelled_calls_leave_the_connection_alive() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    for _ in 0..50 {
        let responses: Vec<_> = (0..100).map(|_| client.ask("/a.B/Cancelled")).collect();
        let mut calls = Vec::new();
        for _ in 0..100 {
            calls.push(runtime.call().await);
        }
        drop(responses);
        for mut call in calls {
            assert_eq!(call.reset().await, Reason::CANCEL);
        }
    }
    let response = client.ask("/a.B/Last");
    runtime.call().await.answer("alive");
    assert_eq!(answered(response).await, "alive");
}

#[tokio::test]
async fn five_thousand_calls_that_upstream_reset_leave_the_connection_alive() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    for _ in 0..5000 {
        let response = client.ask("/a.B/Reset");
        runtime.call().await.respond.send_reset(Reason::INTERNAL_ERROR);
        soon(response).await.unwrap_err();
    }
    let response = client.ask("/a.B/Last");
    runtime.call().await.answer("alive");
    assert_eq!(answered(response).await, "alive");
}

#[tokio::test]
async fn a_stream_is_delivered_frame_by_frame_and_may_idle_for_minutes() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/runtime.v1.RuntimeService/GetContainerEvents");
    let mut call = runtime.call().await;
    let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
    let (_, mut body) = client::head(response).await;
    for event in ["created", "started"] {
        answer.send_data(Bytes::from(event), false).unwrap();
        assert_eq!(
            soon(body.data()).await.unwrap().unwrap(),
            event,
            "an event was delayed until the next one"
        );
    }
    // Only elapsed time can show that nothing on the path ends an idle stream.
    tokio::time::sleep(Duration::from_secs(125)).await;
    answer.send_data(Bytes::from("stopped"), false).unwrap();
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "stopped");
    answer.send_trailers(headers(&[("grpc-status", "0")])).unwrap();
    assert!(read_all(&mut body).await.unwrap().1.is_some());
}

#[tokio::test]
async fn a_hundred_thousand_tiny_frames_are_not_taken_for_an_attack() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let response = client.ask("/a.B/Events");
    let mut call = runtime.call().await;
    let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
    let sender = tokio::spawn(async move {
        for n in 0_u32..100_000 {
            send_all(&mut answer, Bytes::copy_from_slice(&n.to_be_bytes()[3..]), false).await.unwrap();
        }
        answer.send_data(Bytes::new(), true).unwrap();
    });
    let (_, mut body) = client::head(response).await;
    let all = read_all(&mut body).await.unwrap().0;
    assert_eq!(all.len(), 100_000);
    assert!(all.iter().enumerate().all(|(n, byte)| n % 256 == usize::from(*byte)));
    soon(sender).await.unwrap();
}

#[tokio::test]
async fn a_request_in_small_pieces_arrives_while_it_is_being_sent() {
    let shim = shim();
    let (mut client, mut runtime, _listener) = shim.joined().await;
    let (_response, mut body) = client.start(request("/a.B/Upload"), false);
    let mut call = runtime.call().await;
    for piece in ["one", "two", "three"] {
        body.send_data(Bytes::from(piece), false).unwrap();
        assert_eq!(soon(call.request.body_mut().data()).await.unwrap().unwrap(), piece);
    }
    body.send_trailers(headers(&[("x-end", "of request")])).unwrap();
    assert_eq!(read_all(call.request.body_mut()).await.unwrap().1.unwrap()["x-end"], "of request");
}
