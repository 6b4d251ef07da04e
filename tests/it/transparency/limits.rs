//! Limits of the data that one client may have in flight. Other clients are served while one
//! exceeds the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fixtures::http2::runtime::{self, Runtime};
use fixtures::http2::wire::{self, DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire, frame, word};
use fixtures::http2::{Shim, is_served, shim};
use fixtures::wait::soon;
use tokio::io::AsyncWriteExt as _;

/// Maximum number of calls that one client may have in flight.
const MAX_STREAMS: u32 = 10_000;

/// Maximum number of unread bytes of one request.
const REQUEST_WINDOW: u32 = 256 << 10;

/// Maximum number of unread bytes of all requests, or of all responses, of one client.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Initial window of every HTTP/2 connection, in bytes.
const FIRST_WINDOW: u32 = 65_535;

const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const PING: u8 = 6;

/// Returns the head of a call on the nth stream of a connection.
fn head(n: u32) -> Vec<u8> {
    frame(HEADERS, wire::END_HEADERS, 2 * n + 1, wire::REQUEST)
}

/// Returns the value of a setting.
fn setting(settings: &[u8], id: u16) -> Option<u32> {
    let (settings, _) = settings.as_chunks::<6>();
    let setting = settings.iter().find(|setting| setting[..2] == id.to_be_bytes())?;
    Some(u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
}

/// Returns the increment of a `WINDOW_UPDATE` of the connection, or 0 for another frame.
fn granted(frame: &wire::Frame) -> u32 {
    match (frame.kind, frame.stream) {
        (WINDOW_UPDATE, 0) => u32::from_be_bytes(frame.payload[..4].try_into().unwrap()),
        _ => 0,
    }
}

/// Returns a client that has sent its preface, and the settings of the relay.
async fn client_in_frames(shim: &Shim) -> (Wire, Vec<u8>) {
    let mut client = Wire(shim.connect().await);
    client.send(wire::HELLO).await;
    let settings = client.next_of(SETTINGS).await.payload;
    client.send(&frame(SETTINGS, wire::ACK, 0, &[])).await;
    (client, settings)
}

/// Makes calls with a header of 8 KB each, without end. Returns the counter of the bytes that the
/// relay has taken.
fn calls_with_large_heads(Wire(mut stream): Wire) -> Arc<AtomicUsize> {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    tokio::spawn(async move {
        // The header is a literal that is not added to the table.
        let mut block = wire::REQUEST.to_vec();
        block.extend(b"\x00\x01x\x7f\x81\x3f");
        block.resize(block.len() + 8192, b'v');
        for n in 0_u32.. {
            let call = frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 2 * n + 1, &block);
            if stream.write_all(&call).await.is_err() {
                return;
            }
            counted.fetch_add(call.len(), Ordering::Relaxed);
        }
    });
    taken
}

/// Waits until a client has reached the limit of unwritten bytes.
async fn limited_by_unwritten_bytes(shim: &Shim) {
    soon(async {
        while shim.relay_metrics.unwritten_limited() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Checks that another client, whose runtime answers, is served.
async fn another_is_served(shim: &Shim, runtime: &Runtime, calls: usize) {
    let (mut client, mut connection) = soon(async { tokio::join!(shim.client(), runtime.accept()) }).await;
    for _ in 0..calls {
        is_served(&mut client, &mut connection).await;
    }
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_and_the_others_continue() {
    let shim = shim();
    let runtime = shim.runtime();
    let (mut client, settings) = client_in_frames(&shim).await;
    assert_eq!(setting(&settings, MAX_CONCURRENT_STREAMS), Some(MAX_STREAMS));
    let mut connection = runtime.accept().await;
    // This client ignores the limit in the relay's settings.
    client.send(&(0..=MAX_STREAMS).flat_map(head).collect::<Vec<u8>>()).await;
    let refused = client.next_of(RST_STREAM).await;
    assert_eq!((refused.stream, refused.payload), (2 * MAX_STREAMS + 1, word(wire::REFUSED_STREAM).to_vec()));
    let mut calls = Vec::new();
    for _ in 0..MAX_STREAMS {
        calls.push(connection.call().await);
    }
    // The relay may count the refusal only after the last head has been written.
    soon(async {
        while shim.relay_metrics.streams_limited() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(shim.relay_metrics.streams_limited(), 1);

    // The end of a call makes room for another.
    client.send(&frame(RST_STREAM, 0, 1, &word(wire::CANCEL))).await;
    calls[0].reset().await;
    client.send(&head(MAX_STREAMS + 1)).await;
    let call = connection.call().await;
    call.answer("in the place of another");
    assert_eq!(client.next_of(DATA).await.stream, 2 * MAX_STREAMS + 3);
    another_is_served(&shim, &runtime, 1).await;
}

#[tokio::test]
async fn uploads_to_a_stalled_runtime_are_held_up_to_the_window_of_their_connection() {
    let shim = shim();
    let runtime = shim.runtime();
    let (mut client, settings) = client_in_frames(&shim).await;
    assert_eq!(setting(&settings, INITIAL_WINDOW_SIZE), Some(REQUEST_WINDOW));
    let _stopped = runtime.accept_raw().await;
    let mut window = FIRST_WINDOW;
    while window < CONNECTION_WINDOW {
        window += granted(&soon(client.next()).await.unwrap());
    }
    assert_eq!(window, CONNECTION_WINDOW);
    let part = vec![7; 16 << 10];
    for n in 0..CONNECTION_WINDOW / REQUEST_WINDOW {
        let upload = frame(DATA, 0, 2 * n + 1, &part).repeat(REQUEST_WINDOW as usize / part.len());
        client.send(&[head(n), upload].concat()).await;
    }
    // The relay grants no more than the bytes that the runtime's window has let pass, and other
    // clients are served.
    client.send(&frame(PING, 0, 0, &[1; 8])).await;
    let mut more = 0;
    loop {
        let next = soon(client.next()).await.expect("the connection ended instead");
        more += granted(&next);
        if next.kind == PING {
            break;
        }
    }
    assert!(more <= FIRST_WINDOW, "the relay granted {more} more bytes");
    another_is_served(&shim, &runtime, 1).await;
}

#[tokio::test]
async fn unread_answers_are_held_up_to_the_limits_of_their_client() {
    const CALLS: u32 = 100;
    /// Maximum number of bytes in the relay and the sockets: the window, unwritten bytes, and a
    /// reserve.
    const HELD: usize = CONNECTION_WINDOW as usize + (8 << 20);
    let shim = shim();
    let runtime = shim.runtime();
    let mut client = Wire(shim.connect().await);
    let largest = i32::MAX.cast_unsigned();
    let window = frame(SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &word(largest)].concat());
    let more = frame(WINDOW_UPDATE, 0, 0, &word(largest - FIRST_WINDOW));
    let calls: Vec<u8> = (0..CALLS)
        .flat_map(|n| frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 2 * n + 1, wire::REQUEST))
        .collect();
    client.send(&[&wire::HELLO[..24], &window, &more, &calls].concat()).await;
    let mut connection = runtime.accept().await;
    let sent = Arc::new(AtomicUsize::new(0));
    for _ in 0..CALLS {
        let (mut call, sent) = (connection.call().await, sent.clone());
        tokio::spawn(async move {
            let mut answer = call.respond.send_response(runtime::ok(), false).unwrap();
            let chunk = Bytes::from(vec![0; 16 << 10]);
            loop {
                answer.reserve_capacity(chunk.len());
                let Some(Ok(room)) = std::future::poll_fn(|cx| answer.poll_capacity(cx)).await else {
                    return;
                };
                let part = chunk.slice(..room.min(chunk.len()));
                sent.fetch_add(part.len(), Ordering::Relaxed);
                if answer.send_data(part, false).is_err() {
                    return;
                }
            }
        });
    }
    soon(async {
        while sent.load(Ordering::Relaxed) < 48 << 20 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    another_is_served(&shim, &runtime, 300).await;
    let held = sent.load(Ordering::Relaxed);
    assert!(held <= HELD, "{held} bytes were taken that the client does not read");
}

/// The relay holds the head of a call that the runtime's stream limit delays.
#[tokio::test]
async fn heads_beyond_the_runtimes_stream_limit_are_held_up_to_the_limit_of_unwritten_bytes() {
    /// Maximum number of bytes in the relay and the sockets: unwritten bytes and a reserve.
    const HELD: usize = 8 << 20;
    let shim = shim();
    let runtime = shim.runtime();
    let (client, _) = client_in_frames(&shim).await;
    let mut upstream = Wire(runtime.accept_raw().await);
    upstream.expect_hello().await;
    let one_stream = [&MAX_CONCURRENT_STREAMS.to_be_bytes()[..], &word(1)].concat();
    upstream.send(&frame(SETTINGS, 0, 0, &one_stream)).await;
    upstream.send(&frame(SETTINGS, wire::ACK, 0, &[])).await;
    while upstream.next_of(SETTINGS).await.flags != wire::ACK {}
    // The runtime reads everything and answers nothing.
    let (mut read, _write) = upstream.0.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
    let taken = calls_with_large_heads(client);
    limited_by_unwritten_bytes(&shim).await;
    another_is_served(&shim, &runtime, 300).await;
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken <= HELD, "{taken} bytes were taken that the runtime has not received");
}

/// Trailers are not subject to flow control.
#[tokio::test]
async fn a_runtime_is_read_no_faster_than_its_client_reads_the_trailers_of_its_answers() {
    /// Maximum number of bytes in the relay and four sockets: unwritten bytes and a reserve.
    const HELD: usize = 16 << 20;
    const ANSWERS: u32 = 4_000;
    let shim = shim();
    let runtime = shim.runtime();
    let calls: Vec<u8> = (0..ANSWERS)
        .flat_map(|n| frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 2 * n + 1, wire::REQUEST))
        .collect();
    // The client reads nothing during the attack.
    let mut client = Wire(shim.connect().await);
    client.send(&[wire::HELLO, &calls].concat()).await;
    let mut upstream = Wire(runtime.accept_raw().await);
    upstream.expect_hello().await;
    upstream.send(&frame(SETTINGS, 0, 0, &[])).await;
    for _ in 0..ANSWERS {
        upstream.next_of(HEADERS).await;
    }
    // A status of 200, and a header of 8 KB as a literal that is not added to the table.
    let mut block = b"\x88\x00\x01x\x7f\x81\x3f".to_vec();
    block.resize(block.len() + 8192, b'v');
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let writer = tokio::spawn(async move {
        for n in 0..ANSWERS {
            let answer = frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 2 * n + 1, &block);
            if upstream.0.write_all(&answer).await.is_err() {
                return;
            }
            counted.fetch_add(answer.len(), Ordering::Relaxed);
        }
    });
    soon(async {
        while sent.load(Ordering::Relaxed) < 1 << 20 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    another_is_served(&shim, &runtime, 2000).await;
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent <= HELD, "{sent} bytes were taken that the client does not read");
    // The client reads again and receives all answers.
    for _ in 0..ANSWERS {
        client.next_of(HEADERS).await;
    }
    soon(writer).await.unwrap();
}

#[tokio::test]
async fn a_client_is_read_no_faster_than_its_runtime_reads_the_heads_of_its_calls() {
    /// Maximum number of bytes in the relay and four sockets: unwritten bytes and a reserve.
    const HELD: usize = 8 << 20;
    let shim = shim();
    let runtime = shim.runtime();
    let (client, _) = client_in_frames(&shim).await;
    let _stopped = runtime.accept_raw().await;
    let taken = calls_with_large_heads(client);
    limited_by_unwritten_bytes(&shim).await;
    another_is_served(&shim, &runtime, 300).await;
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken <= HELD, "{taken} bytes were taken that the runtime does not read");
}

#[tokio::test]
async fn a_second_client_is_served_during_floods() {
    let shim = shim();
    let runtime = shim.runtime();
    let floods: [fn(u32) -> Vec<u8>; 3] = [
        head,
        |_| frame(PING, 0, 0, &[1; 8]),
        |n| [head(n), frame(RST_STREAM, 0, 2 * n + 1, &word(wire::CANCEL))].concat(),
    ];
    let mut attackers = Vec::new();
    let mut connections = Vec::new();
    for flood in floods {
        let (client, _) = client_in_frames(&shim).await;
        connections.push(runtime.accept().await);
        let (mut read, mut write) = client.0.into_split();
        attackers.push(tokio::spawn(async move {
            for first in (0_u32..).step_by(500) {
                let frames: Vec<u8> = (first..first + 500).flat_map(flood).collect();
                if write.write_all(&frames).await.is_err() {
                    return;
                }
            }
        }));
        attackers.push(tokio::spawn(async move {
            drop(tokio::io::copy(&mut read, &mut tokio::io::sink()).await);
        }));
    }
    another_is_served(&shim, &runtime, 100).await;
    assert!(shim.relay_metrics.turns_exhausted() > 0, "no flood was interrupted");
    for attacker in attackers {
        attacker.abort();
    }
}
