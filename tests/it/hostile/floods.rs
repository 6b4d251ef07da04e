//! Floods of one client, each with a fixed number of frames. Another client is served in the
//! meantime.

use fixtures::http2::wire::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, HELLO, PADDED, REQUEST, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, Wire, frame, word,
};
use fixtures::wait::soon;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use super::Besieged;

const PRIORITY_FRAME: u8 = 2;
const PING: u8 = 6;
const UNKNOWN: u8 = 0xfa;

const ENHANCE_YOUR_CALM: u32 = 11;

/// End of a flooding client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The next request on the connection is answered.
    Served,
    /// The relay closes the connection with this code.
    GoAway(u32),
}

/// Frames that are sent together, with a request on the last stream.
struct Flood {
    name: &'static str,
    frames: Vec<u8>,
    last_stream: u32,
    end: End,
}

/// Returns a request on a stream, with these flags.
fn request(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, REQUEST)
}

/// Returns a header block of 32 MiB in 12 KiB: one header is added to the table and then repeated
/// by its index.
fn hpack_bomb(stream: u32) -> Vec<u8> {
    let literal = [&b"\x40\x01a\x7f\xa1\x1e"[..], &[b'x'; 4000]].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &[REQUEST, &literal, &[0xbe; 8000]].concat())
}

/// Returns frames that open streams and reset them immediately.
fn rapid_resets(count: u32) -> Vec<u8> {
    let pair = |stream| [request(stream, END_HEADERS), frame(RST_STREAM, 0, stream, &word(wire::CANCEL))];
    (0..count).flat_map(|call| pair(call * 2 + 1)).flatten().collect()
}

fn floods() -> Vec<Flood> {
    let served = |name, frames: Vec<u8>| Flood { name, frames, last_stream: 100_001, end: End::Served };
    let ended = |name, first: Vec<u8>, repeated: Vec<u8>, times| Flood {
        name,
        frames: [first, repeated.repeat(times)].concat(),
        last_stream: 100_001,
        end: End::GoAway(ENHANCE_YOUR_CALM),
    };
    vec![
        served("PING", frame(PING, 0, 0, &[7; 8]).repeat(20_000)),
        served("SETTINGS", frame(SETTINGS, 0, 0, &[]).repeat(20_000)),
        served("PRIORITY", frame(PRIORITY_FRAME, 0, 1, &[0, 0, 0, 3, 9]).repeat(50_000)),
        served("frames of an unknown type", frame(UNKNOWN, 0, 0, &[0; 1024]).repeat(20_000)),
        served("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &word(1)).repeat(50_000)),
        served("rapid reset", rapid_resets(10_000)),
        ended("empty CONTINUATION", request(1, 0), frame(CONTINUATION, 0, 1, &[]), 20_000),
        ended("full CONTINUATION", request(1, 0), frame(CONTINUATION, 0, 1, &[0; 16 << 10]), 2_000),
        ended("empty DATA", request(1, END_HEADERS), frame(DATA, 0, 1, &[]), 200_000),
        ended("header blocks of 32 MiB", Vec::new(), hpack_bomb(1), 1),
        ended("DATA of padding", request(1, END_HEADERS), frame(DATA, PADDED, 1, &[1, 0]), 200_000),
    ]
}

/// Sends a flood while it reads the answers.
async fn end_of(stream: UnixStream, flood: &Flood) -> End {
    let stream = stream.into_std().unwrap();
    let mut writer = UnixStream::from_std(stream.try_clone().unwrap()).unwrap();
    let mut reader = Wire(UnixStream::from_std(stream).unwrap());
    let bytes = [HELLO, &flood.frames, &request(flood.last_stream, END_HEADERS | END_STREAM)].concat();
    // The relay may close the connection during the flood.
    let writing = async { soon(writer.write_all(&bytes)).await.is_ok() };
    let reading = async {
        loop {
            let frame = reader.next().await?;
            if frame.kind == GOAWAY {
                return Some(End::GoAway(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())));
            }
            if frame.kind == HEADERS && frame.stream == flood.last_stream {
                return Some(End::Served);
            }
        }
    };
    let (_, end) = tokio::join!(writing, reading);
    end.unwrap_or_else(|| panic!("{}: the connection ended without a GOAWAY", flood.name))
}

#[tokio::test]
async fn a_flooding_client_does_not_affect_other_clients() {
    let mut besieged = Besieged::start().await;
    let mut wrong = Vec::new();
    for flood in floods() {
        let stream = UnixStream::connect(&besieged.shim.socket).await.unwrap();
        let mut flooding = std::pin::pin!(end_of(stream, &flood));
        let end = loop {
            tokio::select! {
                biased;
                () = besieged.serves_bystander() => {}
                end = &mut flooding => break end,
            }
        };
        if end != flood.end {
            wrong.push(format!("{}: {end:?} instead of {:?}", flood.name, flood.end));
        }
        besieged.serves_bystander().await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    besieged.assert_unharmed().await;
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_not_read_further() {
    let mut besieged = Besieged::start().await;
    for (name, repeated) in [("PING", frame(PING, 0, 0, &[7; 8])), ("SETTINGS", frame(SETTINGS, 0, 0, &[]))] {
        let mut stream = UnixStream::connect(&besieged.shim.socket).await.unwrap();
        stream.write_all(HELLO).await.unwrap();
        let flood = repeated.repeat(1_000_000);
        for _ in 0..100 {
            tokio::select! {
                biased;
                () = besieged.serves_bystander() => {}
                _ = stream.write_all(&flood) => panic!("{name}: a million frames were read, and their answers kept"),
            }
        }
        drop(stream);
        besieged.serves_bystander().await;
    }
    besieged.assert_unharmed().await;
}
