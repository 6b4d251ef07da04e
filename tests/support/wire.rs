//! HTTP/2 frame by frame, for what no well-behaved peer would send.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::soon;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const PRIORITY: u8 = 0x20;

/// The preface and empty settings of a client.
pub const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub const NO_ERROR: u32 = 0;
/// Also for what HTTP/2 calls a compression error: h2 does not tell the two apart.
pub const PROTOCOL_ERROR: u32 = 1;
pub const FRAME_SIZE_ERROR: u32 = 6;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

/// The header block of a request: POST, http, localhost and a path.
pub const REQUEST: &[u8] = b"\x83\x86\x41\x09localhost\x44\x05/a.B/";

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection that is read and written in frames.
#[derive(Debug)]
pub struct Wire(pub UnixStream);

/// A frame's bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A reason's or a stream id's bytes.
pub fn word(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

impl Wire {
    pub async fn send(&mut self, bytes: &[u8]) {
        soon(self.0.write_all(bytes)).await.unwrap();
    }

    /// The next frame, or `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        soon(self.0.read_exact(&mut head)).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        soon(self.0.read_exact(&mut payload)).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of a kind; those before it are passed over.
    pub async fn next_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().await.expect("the connection ended instead");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The reason of the GOAWAY that comes, and that the connection ends behind it.
    pub async fn ended_with(&mut self) -> u32 {
        let goaway = self.next_of(GOAWAY).await;
        while self.next().await.is_some() {}
        u32::from_be_bytes(goaway.payload[4..8].try_into().unwrap())
    }

    /// Reads a client's preface, as a server does.
    pub async fn expect_hello(&mut self) {
        let mut preface = [0; 24];
        soon(self.0.read_exact(&mut preface)).await.unwrap();
        assert_eq!(&preface, &HELLO[..24]);
    }
}
