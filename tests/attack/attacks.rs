//! The attacks, each on one connection.

use std::io::ErrorKind;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use fixtures::http2::wire::{
    CONTINUATION, DATA, END_STREAM, HEADERS, HELLO, PADDED, SETTINGS, WINDOW_UPDATE, frame, word,
};
use h2::client::SendRequest;
use http::Request;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::flood::{Flood, Reading};
use crate::frames::{self, PING, PRIORITY_FRAME, Streams, UNKNOWN};
use crate::stub::{LARGE_LIST, LIST, VERSION};

/// Duration of a flood.
const FLOOD: Duration = Duration::from_secs(4);

/// Time for which opened streams are held.
const HOLD: Duration = Duration::from_secs(1);

/// Number of frames in one write.
const BATCH: usize = 500;

/// Minimum number of bytes that the other end takes from an attack that it does not stop.
const MIN_SENT: u64 = 100_000;

/// Minimum number of bytes that the other end takes from an attack that it stops, or that is small.
const MIN_SENT_IF_STOPPED: u64 = 2_000;

/// Maximum number of connections of a storm.
const STORM: u64 = 10_000;

/// Time between two attempts to connect while the backlog of the socket is full.
const KNOCK: Duration = Duration::from_micros(200);

/// The figures by which an attack is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Latencies of the second client, and memory.
    Latency,
    /// The worst call of the second client, compared with the worst under the same attack on the
    /// runtime itself. Each connection has its own memory.
    WorstCall,
    /// Memory only: the runtime is stopped, so that no client gets an answer.
    MemoryWhileStopped,
}

type Running<'a> = Pin<Box<dyn Future<Output = u64> + 'a>>;

type MakeAttack = Box<dyn Fn(&Path) -> Running<'_> + Sync>;

/// An attack on the socket of a runtime.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) measure: Measure,
    /// Minimum number of bytes that the other end takes. With fewer, the attack did not happen.
    pub(crate) min_sent: u64,
    /// Runs the attack and returns the number of bytes that the other end has taken.
    pub(crate) make: MakeAttack,
}

fn attack<F>(name: &'static str, make: fn(std::path::PathBuf) -> F) -> Attack
where
    F: Future<Output = u64> + 'static,
{
    Attack {
        name,
        measure: Measure::Latency,
        min_sent: MIN_SENT,
        make: Box::new(move |socket| Box::pin(make(socket.to_owned()))),
    }
}

/// Returns an attack that the other end stops, or that is small.
fn stopped<F>(name: &'static str, make: fn(std::path::PathBuf) -> F) -> Attack
where
    F: Future<Output = u64> + 'static,
{
    Attack { min_sent: MIN_SENT_IF_STOPPED, ..attack(name, make) }
}

/// Returns every attack, in the order of the report's tables. `open_files` is the maximum number of
/// a process.
pub(crate) fn all(open_files: u64) -> Vec<Attack> {
    // probeshim has two files for each connection, and some of its own.
    let storm_size = STORM.min(open_files.saturating_sub(500) / 2);
    vec![
        attack("streams held, 10000", |socket| async move { hold_streams(&socket, 10_000).await }),
        attack("streams held, 100000", |socket| async move { hold_streams(&socket, 100_000).await }),
        attack("streams held, 300000", |socket| async move { hold_streams(&socket, 300_000).await }),
        attack("calls unread, 10000", |socket| async move {
            let mut flood = Flood::connect(&socket, Reading::Nothing, None).await;
            let mut streams = Streams::default();
            for _ in 0..10_000 / BATCH {
                flood.send_within(&batch(|| frames::call(streams.next(), VERSION)), HOLD).await;
            }
            flood.hold(HOLD).await;
            flood.sent
        }),
        attack(
            "calls without reading",
            |socket| async move { calls(&socket, VERSION, Reading::Nothing).await },
        ),
        attack("lists without reading", |socket| async move { calls(&socket, LIST, Reading::Nothing).await }),
        attack("streams without end", |socket| async move {
            let mut streams = Streams::default();
            flood(&socket, Reading::Everything, move || frames::open(streams.next(), VERSION)).await
        }),
        stopped("large lists, no window", |socket| async move {
            let mut flood =
                Flood::connect(&socket, Reading::Everything, Some(frames::stream_window(0))).await;
            let mut streams = Streams::default();
            for _ in 0..200 {
                flood.send(&frames::call(streams.next(), LARGE_LIST)).await;
            }
            flood.hold(FLOOD).await;
            flood.sent
        }),
        Attack {
            measure: Measure::MemoryWhileStopped,
            ..attack("uploads, runtime stopped", |socket| async move { upload(&socket, 200).await })
        },
        attack("PING, read", |socket| async move { pings(&socket, Reading::Everything).await }),
        attack("PING, unread", |socket| async move { pings(&socket, Reading::Nothing).await }),
        attack("SETTINGS, read", |socket| async move { settings(&socket, Reading::Everything).await }),
        attack("SETTINGS, unread", |socket| async move { settings(&socket, Reading::Nothing).await }),
        attack("PRIORITY", |socket| async move {
            let mut streams = Streams::default();
            flood(&socket, Reading::Everything, move || {
                frame(PRIORITY_FRAME, 0, streams.next(), &[0, 0, 0, 0, 7])
            })
            .await
        }),
        attack("unknown frames", |socket| async move {
            flood(&socket, Reading::Everything, || frame(UNKNOWN, 0, 0, &[0; 1000])).await
        }),
        attack("WINDOW_UPDATE", |socket| async move {
            let mut flood = Flood::connect(&socket, Reading::Everything, None).await;
            flood.send(&frames::open(1, VERSION)).await;
            flood.go_on(FLOOD, || batch(|| frame(WINDOW_UPDATE, 0, 1, &word(1)))).await;
            flood.sent
        }),
        stopped("CONTINUATION, empty", |socket| async move { continuations(&socket, 0).await }),
        stopped("CONTINUATION, full", |socket| async move { continuations(&socket, 16 << 10).await }),
        stopped("DATA, empty", |socket| async move { data(&socket, 0, &[]).await }),
        stopped("DATA, padding only", |socket| async move { data(&socket, PADDED, &[3, 0, 0, 0]).await }),
        attack("DATA, a byte each", |socket| async move { data(&socket, 0, &[7]).await }),
        attack("rapid reset", |socket| async move {
            let mut streams = Streams::default();
            flood(&socket, Reading::Everything, move || {
                let stream = streams.next();
                [frames::open(stream, VERSION), frames::cancel(stream)].concat()
            })
            .await
        }),
        attack("rapid reset with body, read", |socket| async move {
            resets_with_body(&socket, Reading::Everything, 32).await
        }),
        attack("rapid reset with body, unread", |socket| async move {
            resets_with_body(&socket, Reading::Nothing, 32).await
        }),
        attack("rapid reset with large body", |socket| async move {
            resets_with_body(&socket, Reading::Everything, 16 << 10).await
        }),
        attack("HPACK bomb, 16 MB a call", |socket| async move { bombs(&socket, 4_000).await }),
        attack("HPACK bomb, 250 KB a call", |socket| async move { bombs(&socket, 62).await }),
        storm("connections, silent", storm_size, Vec::new()),
        storm("connections, a call each", storm_size, [HELLO, &frames::call(1, VERSION)].concat()),
    ]
}

/// Returns [`BATCH`] frames of one kind.
fn batch(mut next: impl FnMut() -> Vec<u8>) -> Vec<u8> {
    (0..BATCH).flat_map(|_| next()).collect()
}

/// Writes frames of one kind for [`FLOOD`].
async fn flood(socket: &Path, reading: Reading, mut next: impl FnMut() -> Vec<u8>) -> u64 {
    let mut flood = Flood::connect(socket, reading, None).await;
    flood.go_on(FLOOD, || batch(&mut next)).await;
    flood.sent
}

/// Returns an attack that opens `count` connections as fast as possible, sends the same bytes on
/// each, holds them for [`HOLD`], and closes all at once.
fn storm(name: &'static str, count: u64, bytes: Vec<u8>) -> Attack {
    let make: MakeAttack = Box::new(move |socket| {
        let (socket, bytes) = (socket.to_owned(), bytes.clone());
        Box::pin(async move {
            let mut connections = Vec::new();
            while (connections.len() as u64) < count {
                match UnixStream::connect(&socket).await {
                    Ok(mut connection) => {
                        connection.write_all(&bytes).await.unwrap();
                        connections.push(connection);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(KNOCK).await,
                    Err(error) => panic!("{} connections, then {error}", connections.len()),
                }
            }
            sleep(HOLD).await;
            count * bytes.len() as u64
        })
    });
    Attack { name, measure: Measure::WorstCall, min_sent: 0, make }
}

/// Opens `count` streams, ends none of them, and holds them for [`HOLD`].
async fn hold_streams(socket: &Path, count: usize) -> u64 {
    let mut flood = Flood::connect(socket, Reading::Everything, None).await;
    let mut streams = Streams::default();
    for _ in 0..count / BATCH {
        flood.send(&batch(|| frames::open(streams.next(), VERSION))).await;
    }
    assert_eq!(streams.count(), count as u64);
    flood.hold(HOLD).await;
    flood.sent
}

async fn calls(socket: &Path, method: &str, reading: Reading) -> u64 {
    let mut streams = Streams::default();
    flood(socket, reading, move || frames::call(streams.next(), method)).await
}

async fn pings(socket: &Path, reading: Reading) -> u64 {
    flood(socket, reading, || frame(PING, 0, 0, &[1; 8])).await
}

async fn settings(socket: &Path, reading: Reading) -> u64 {
    flood(socket, reading, || frame(SETTINGS, 0, 0, &[])).await
}

/// Begins a header block and continues it without end.
async fn continuations(socket: &Path, bytes: usize) -> u64 {
    let mut flood = Flood::connect(socket, Reading::Everything, None).await;
    flood.send(&frame(HEADERS, 0, 1, &frames::block(VERSION))).await;
    // A literal without indexing, repeated, whose name and value have one byte each.
    let payload = [0, 1, b'x', 1, b'v'].repeat(bytes / 5);
    let next = frame(CONTINUATION, 0, 1, &payload);
    flood.go_on(FLOOD, || next.repeat(if bytes == 0 { BATCH } else { 4 })).await;
    flood.sent
}

/// Repeats the same DATA frame on one stream.
async fn data(socket: &Path, flags: u8, payload: &[u8]) -> u64 {
    let mut flood = Flood::connect(socket, Reading::Everything, None).await;
    flood.send(&frames::open(1, VERSION)).await;
    flood.go_on(FLOOD, || batch(|| frame(DATA, flags, 1, payload))).await;
    flood.sent
}

/// Opens streams with a message of `bytes` bytes and resets each stream immediately.
async fn resets_with_body(socket: &Path, reading: Reading, bytes: usize) -> u64 {
    let mut streams = Streams::default();
    let body = vec![0; bytes];
    let mut flood = Flood::connect(socket, reading, None).await;
    flood
        .go_on(FLOOD, || {
            let mut next = || {
                let stream = streams.next();
                let message = frame(DATA, END_STREAM, stream, &body);
                [frames::open(stream, VERSION), message, frames::cancel(stream)].concat()
            };
            if bytes < 1 << 10 { batch(next) } else { next() }
        })
        .await;
    flood.sent
}

/// Sends requests that repeat a header of 4 KB `times` times, with one byte for each repetition.
async fn bombs(socket: &Path, times: usize) -> u64 {
    let mut flood = Flood::connect(socket, Reading::Everything, None).await;
    let mut streams = Streams::default();
    flood.send(&frames::bomb_fuse(streams.next(), VERSION)).await;
    flood.go_on(FLOOD, || frames::bomb(streams.next(), VERSION, times)).await;
    flood.sent
}

/// Uploads 4 MiB on each of `streams` streams, as far as the windows allow.
async fn upload(socket: &Path, streams: usize) -> u64 {
    let stream = UnixStream::connect(socket).await.unwrap();
    let (calls, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(async move { drop(connection.await) });
    let uploads: Vec<_> = (0..streams).map(|_| tokio::spawn(upload_one(calls.clone()))).collect();
    // No upload ends by itself, because the runtime is stopped.
    sleep(FLOOD).await;
    let mut sent = 0;
    for upload in uploads {
        sent += timeout(Duration::ZERO, upload).await.map_or(0, Result::unwrap);
    }
    driver.abort();
    sent
}

/// Uploads at most 4 MiB within half of [`FLOOD`], and returns the number of bytes taken.
async fn upload_one(mut calls: SendRequest<Bytes>) -> u64 {
    let request = Request::post(format!("http://localhost{VERSION}")).body(()).unwrap();
    let (_response, mut body) = calls.send_request(request, false).unwrap();
    let mut message = Bytes::from(vec![0; 4 << 20]);
    let mut sent = 0;
    let all = async {
        while !message.is_empty() {
            body.reserve_capacity(message.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await else { return };
            let part = message.split_to(room.min(message.len()));
            sent += part.len() as u64;
            body.send_data(part, false).unwrap();
        }
    };
    let _ = timeout(FLOOD / 2, all).await;
    // The stream stays open until all uploads have been measured.
    tokio::spawn(async move {
        sleep(FLOOD).await;
        drop(body);
    });
    sent
}
