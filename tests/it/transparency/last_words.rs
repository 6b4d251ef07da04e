//! The client receives everything that the upstream sent before the end of a call, or before its
//! own end, and learns of the end afterwards.

use fixtures::http2::wire::{self, DATA, Frame, GOAWAY, HEADERS, RST_STREAM, SETTINGS, Wire, frame, word};
use fixtures::http2::{Shim, shim};

/// Size of an answer in bytes: more than sockets buffer, and less than the windows of the relay.
const LARGE: usize = 3 << 20;

/// Returns a client that reads only on demand and has made calls on these streams, and its
/// upstream, which has read the heads of the calls.
async fn joined(shim: &Shim, streams: &[u32]) -> (Wire, Wire) {
    let runtime = shim.runtime();
    let mut client = Wire(shim.connect().await);
    let mut hello = wire::HELLO[..24].to_vec();
    // Windows of 2 GiB, so that only the socket limits the data.
    let initial_window_size = [&[0, 4][..], &word(i32::MAX as u32)].concat();
    hello.extend(frame(SETTINGS, 0, 0, &initial_window_size));
    hello.extend(frame(wire::WINDOW_UPDATE, 0, 0, &word(i32::MAX as u32 - 65_535)));
    for stream in streams {
        hello.extend(frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, *stream, wire::REQUEST));
    }
    client.send(&hello).await;
    let mut upstream = Wire(runtime.accept_raw().await);
    upstream.expect_hello().await;
    // The relay's windows take effect only after the upstream acknowledges the relay's settings.
    upstream.send(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, wire::ACK, 0, &[])].concat()).await;
    for _ in streams {
        upstream.next_of(HEADERS).await;
    }
    (client, upstream)
}

/// Returns a head and `LARGE` bytes of data, with these flags on the last frame.
fn answer(stream: u32, last_flags: u8) -> Vec<u8> {
    let mut bytes = frame(HEADERS, wire::END_HEADERS, stream, b"\x88");
    let count = LARGE / (16 << 10);
    for n in 1..=count {
        bytes.extend(frame(DATA, if n == count { last_flags } else { 0 }, stream, &[7; 16 << 10]));
    }
    bytes
}

/// Reads all frames until the end of the connection.
async fn rest(client: &mut Wire) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = client.next().await {
        frames.push(frame);
    }
    frames
}

fn data(frames: &[Frame], stream: u32) -> usize {
    frames
        .iter()
        .filter(|frame| frame.kind == DATA && frame.stream == stream)
        .map(|frame| frame.payload.len())
        .sum()
}

fn is_whole(frames: &[Frame], stream: u32) -> bool {
    let ends = |frame: &Frame| frame.stream == stream && frame.flags & wire::END_STREAM != 0;
    data(frames, stream) == LARGE && frames.iter().any(ends)
}

#[tokio::test]
async fn an_answer_is_complete_if_the_upstream_closes_right_after_it() {
    let shim = shim();
    let (mut client, mut upstream) = joined(&shim, &[1]).await;
    upstream.send(&answer(1, wire::END_STREAM)).await;
    drop(upstream);
    let frames = rest(&mut client).await;
    assert!(is_whole(&frames, 1), "{} bytes came", data(&frames, 1));
    assert!(frames.iter().any(|frame| frame.kind == GOAWAY), "the client must learn that upstream has gone");
}

#[tokio::test]
async fn an_answer_is_complete_if_the_upstream_dies_with_another_call_in_flight() {
    let shim = shim();
    let (mut client, mut upstream) = joined(&shim, &[1, 3]).await;
    upstream.send(&answer(1, wire::END_STREAM)).await;
    drop(upstream);
    let frames = rest(&mut client).await;
    assert!(is_whole(&frames, 1), "{} bytes came", data(&frames, 1));
    let about_the_lost: Vec<_> = frames.iter().filter(|frame| frame.stream == 3).collect();
    assert!(about_the_lost.is_empty(), "a lost call ends with its connection: {about_the_lost:?}");
}

#[tokio::test]
async fn data_that_came_before_a_reset_is_delivered_before_it() {
    let shim = shim();
    let (mut client, mut upstream) = joined(&shim, &[1]).await;
    upstream.send(&answer(1, 0)).await;
    upstream.send(&frame(RST_STREAM, 0, 1, &word(wire::CANCEL))).await;
    let mut frames = Vec::new();
    let reset = loop {
        let next = client.next().await.expect("the connection ended instead");
        if next.kind == RST_STREAM {
            break next;
        }
        frames.push(next);
    };
    assert_eq!(data(&frames, 1), LARGE);
    assert_eq!(reset.payload, word(wire::CANCEL));
}

#[tokio::test]
async fn a_client_that_leaves_with_a_call_in_flight_gets_its_answer() {
    let shim = shim();
    let (mut client, mut upstream) = joined(&shim, &[1]).await;
    client.send(&frame(GOAWAY, 0, 0, &[word(0), word(wire::NO_ERROR)].concat())).await;
    upstream.send(&answer(1, wire::END_STREAM)).await;
    let mut frames = Vec::new();
    while !is_whole(&frames, 1) {
        frames.push(client.next().await.expect("the connection ended instead"));
    }
}
