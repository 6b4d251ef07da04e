//! A client that writes HTTP/2 frames itself, so that no library keeps it from opening streams or
//! from not reading.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

use crate::case::Case;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;

/// Frame flags.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The setting `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW_SIZE: u8 = 4;

/// A connection, which is closed when dropped.
pub(crate) struct RawClient {
    write: OwnedWriteHalf,
    /// Present while the client does not read.
    unread: Option<OwnedReadHalf>,
    reader: Option<JoinHandle<()>>,
    next_stream: u32,
}

impl RawClient {
    /// Connects, and completes the exchange of SETTINGS. `initial_window` is the number of bytes
    /// that the server may send on each stream.
    pub(crate) async fn connect(socket: &Path, initial_window: u32) -> std::io::Result<Self> {
        let (mut read, mut write) = UnixStream::connect(socket).await?.into_split();
        let mut hello = PREFACE.to_vec();
        let mut window = vec![0, INITIAL_WINDOW_SIZE];
        window.extend(initial_window.to_be_bytes());
        frame(&mut hello, SETTINGS, 0, 0, &window);
        write.write_all(&hello).await?;
        // The server enforces its settings once they are acknowledged.
        read.read_exact(&mut [0; 9]).await?;
        let mut acknowledgement = Vec::new();
        frame(&mut acknowledgement, SETTINGS, ACK, 0, &[]);
        write.write_all(&acknowledgement).await?;
        Ok(Self { write, unread: Some(read), reader: None, next_stream: 1 })
    }

    /// Starts to read, and to discard, all data that the server sends.
    pub(crate) fn read_everything(&mut self) {
        if let Some(mut read) = self.unread.take() {
            self.reader = Some(tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while read.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
            }));
        }
    }

    /// Opens streams without sending their messages, so that each stays open.
    pub(crate) async fn open_streams(&mut self, case: &Case, count: usize) -> std::io::Result<()> {
        let headers = headers(case.path);
        let mut frames = Vec::new();
        for _ in 0..count {
            let stream = self.take_stream_id();
            frame(&mut frames, HEADERS, END_HEADERS, stream, &headers);
        }
        self.write.write_all(&frames).await
    }

    /// Makes complete calls, without waiting for responses.
    pub(crate) async fn call(&mut self, case: &Case, count: usize) -> std::io::Result<()> {
        let headers = headers(case.path);
        let mut frames = Vec::new();
        for _ in 0..count {
            let stream = self.take_stream_id();
            frame(&mut frames, HEADERS, END_HEADERS, stream, &headers);
            frame(&mut frames, DATA, END_STREAM, stream, &case.message);
        }
        self.write.write_all(&frames).await
    }

    fn take_stream_id(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

/// Appends a frame.
fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    to.extend_from_slice(&length[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

/// Returns the header block of a gRPC call. It refers only to the static table of HPACK, so that it
/// can be sent repeatedly.
fn headers(path: &str) -> Vec<u8> {
    // The block contains `:method POST` and `:scheme http`, then literals with the names `:path`,
    // `:authority` and `content-type`.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(4, path), (1, "localhost")] {
        block.push(name);
        push_string(&mut block, value);
    }
    block.extend([0x0f, 31 - 15]);
    push_string(&mut block, "application/grpc");
    block.push(0);
    push_string(&mut block, "te");
    push_string(&mut block, "trailers");
    block
}

/// Appends a string that is not Huffman-coded.
fn push_string(block: &mut Vec<u8>, value: &str) {
    let length = u8::try_from(value.len()).unwrap();
    assert!(length < 127, "longer lengths take several bytes");
    block.push(length);
    block.extend_from_slice(value.as_bytes());
}
