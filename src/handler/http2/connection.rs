//! Reads and writes the frames of a connection.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::error::Http2Error;
use super::hpack::{self, Decoder, Field, size_of};
use super::{COMPRESSION_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, PROTOCOL_ERROR, STREAM};
use crate::gofmt::quote_bytes;

/// Text with which a client begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Number of bytes of the head of a frame.
const FRAME_HEAD: usize = 9;

/// Number of bytes per read.
const READ_BYTES: usize = 16 << 10;

/// Maximum number of bytes of a frame that is sent or accepted.
const MAX_FRAME: usize = 16 << 10;

/// Types of frames (RFC 9113, section 6).
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const PRIORITY: u8 = 2;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PUSH_PROMISE: u8 = 5;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
mod flag {
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const ACK: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
    pub(super) const PADDED: u8 = 8;
    pub(super) const PRIORITY: u8 = 32;
}

/// Settings of the client.
#[derive(Clone, Copy, Debug)]
pub(in crate::handler) struct ConnectionSettings {
    /// Number of bytes of data that the server may send before they are acknowledged.
    pub(in crate::handler) window: u32,
    /// Maximum size of all fields of a block.
    pub(in crate::handler) max_header_list: u32,
    /// Whether the limit of the size is sent.
    pub(in crate::handler) sends_header_list: bool,
    /// Whether a field is kept, by its name. Pseudo fields always are.
    pub(in crate::handler) keeps: fn(&[u8]) -> bool,
}

/// The fields of a head or of trailers.
#[derive(Debug, Default)]
pub(in crate::handler) struct FieldBlock {
    /// The fields that are kept, in their order.
    pub(in crate::handler) fields: Vec<Field>,
    /// Size of all fields.
    pub(in crate::handler) size: usize,
    /// Whether fields are missing because of the limit of the size.
    pub(in crate::handler) is_truncated: bool,
}

/// A frame.
#[derive(Debug)]
pub(in crate::handler) enum Frame {
    /// A head or trailers of a stream.
    Head {
        stream: u32,
        block: FieldBlock,
        is_end: bool,
    },
    /// Data of a stream.
    Data {
        stream: u32,
        bytes: Bytes,
        is_end: bool,
    },
    /// The stream was reset with a code.
    Reset {
        stream: u32,
        code: u32,
    },
    /// The server takes no more streams after this one.
    GoAway {
        last: u32,
        code: u32,
        debug: Vec<u8>,
    },
    Settings {
        is_ack: bool,
    },
    Ping {
        is_ack: bool,
        data: [u8; 8],
    },
    /// The window of a stream or of the connection (0) grows.
    WindowUpdate {
        stream: u32,
        increment: u32,
    },
    PushPromise,
    Other,
}

/// Head of a frame.
#[derive(Clone, Copy, Debug)]
struct FrameHead {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

/// A connection to a server.
pub(in crate::handler) struct Http2Connection<S> {
    stream: S,
    buffer: BytesMut,
    at_end: bool,
    decoder: Decoder,
    settings: ConnectionSettings,
    /// The stream whose block has not ended.
    open_block: Option<u32>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2Connection<S> {
    /// Begins a connection.
    pub(in crate::handler) async fn begin(mut stream: S, settings: ConnectionSettings) -> io::Result<Self> {
        const ENABLE_PUSH: u16 = 2;
        const INITIAL_WINDOW_SIZE: u16 = 4;
        const MAX_HEADER_LIST_SIZE: u16 = 6;
        let mut values = vec![(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, settings.window)];
        if settings.sends_header_list {
            values.push((MAX_HEADER_LIST_SIZE, settings.max_header_list));
        }
        let payload: Vec<u8> = values
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        stream.write_all(&[PREFACE, &frame(kind::SETTINGS, 0, 0, &payload)].concat()).await?;
        stream.flush().await?;
        let max_text = usize::try_from(settings.max_header_list).unwrap_or(usize::MAX);
        Ok(Self {
            stream,
            buffer: BytesMut::new(),
            at_end: false,
            decoder: Decoder::new(max_text),
            settings,
            open_block: None,
        })
    }

    /// Sends the head of the request, and its body if it has one.
    pub(in crate::handler) async fn send(&mut self, fields: &[Field], body: Option<&[u8]>) -> io::Result<()> {
        let block = hpack::encode(fields);
        let mut parts = block.chunks(MAX_FRAME).peekable();
        let mut kind = kind::HEADERS;
        let mut frames = Vec::new();
        while let Some(part) = parts.next() {
            let mut flags = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            if kind == kind::HEADERS && body.is_none() {
                flags |= flag::END_STREAM;
            }
            frames.extend(frame(kind, flags, STREAM, part));
            kind = kind::CONTINUATION;
        }
        if let Some(body) = body {
            frames.extend(frame(kind::DATA, flag::END_STREAM, STREAM, body));
        }
        self.write(&frames).await
    }

    /// Answers the settings of the server.
    pub(in crate::handler) async fn acknowledge_settings(&mut self) -> io::Result<()> {
        self.write(&frame(kind::SETTINGS, flag::ACK, 0, &[])).await
    }

    /// Answers a ping.
    pub(in crate::handler) async fn answer_ping(&mut self, data: [u8; 8]) -> io::Result<()> {
        self.write(&frame(kind::PING, flag::ACK, 0, &data)).await
    }

    /// Lets the server send more data.
    pub(in crate::handler) async fn grow_window(&mut self, increment: u32) -> io::Result<()> {
        let [connection, stream] =
            [0, STREAM].map(|stream| frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes()));
        self.write(&[connection, stream].concat()).await
    }

    async fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames).await?;
        self.stream.flush().await
    }

    /// Reads the next frame.
    pub(in crate::handler) async fn read(&mut self) -> Result<Frame, Http2Error> {
        let (head, payload) = self.read_frame().await?;
        match head.kind {
            kind::DATA => parse_data(head, payload),
            kind::HEADERS => self.read_block(head, payload).await,
            kind::PUSH_PROMISE if head.stream == 0 => Err(Http2Error::Connection(PROTOCOL_ERROR)),
            kind::PUSH_PROMISE => Ok(Frame::PushPromise),
            kind::RST_STREAM
            | kind::SETTINGS
            | kind::PING
            | kind::GOAWAY
            | kind::WINDOW_UPDATE
            | kind::PRIORITY => parse_payload(head, &payload),
            _ => Ok(Frame::Other),
        }
    }

    /// Reads the head and the payload of a frame.
    async fn read_frame(&mut self) -> Result<(FrameHead, Bytes), Http2Error> {
        let head = self.read_head().await?;
        self.check_order(head)?;
        if !self.buffer(head.length).await? {
            return Err(Http2Error::UnexpectedEof);
        }
        Ok((head, self.buffer.split_to(head.length).freeze()))
    }

    async fn read_head(&mut self) -> Result<FrameHead, Http2Error> {
        if !self.buffer(FRAME_HEAD).await? {
            return Err(if self.buffer.is_empty() { Http2Error::Eof } else { Http2Error::UnexpectedEof });
        }
        let is_http1 = self.buffer.starts_with(b"HTTP/1.1 ");
        let mut head = self.buffer.split_to(FRAME_HEAD);
        let length = usize::try_from(head.get_uint(3)).unwrap_or(usize::MAX);
        let (kind, flags, stream) = (head.get_u8(), head.get_u8(), head.get_u32() & 0x7fff_ffff);
        if length > MAX_FRAME {
            return Err(Http2Error::TooLarge { is_http1 });
        }
        Ok(FrameHead { length, kind, flags, stream })
    }

    /// Checks that a block is not interrupted (`checkFrameOrder`).
    fn check_order(&mut self, head: FrameHead) -> Result<(), Http2Error> {
        let is_continuation = head.kind == kind::CONTINUATION;
        let expected = self.open_block.is_some() == is_continuation
            && self.open_block.is_none_or(|stream| stream == head.stream);
        if !expected {
            return Err(Http2Error::Connection(PROTOCOL_ERROR));
        }
        if matches!(head.kind, kind::HEADERS | kind::CONTINUATION) {
            self.open_block = (head.flags & flag::END_HEADERS == 0).then_some(head.stream);
        }
        Ok(())
    }

    /// Reads a block of fields with its continuations (`readMetaFrame`).
    async fn read_block(&mut self, head: FrameHead, payload: Bytes) -> Result<Frame, Http2Error> {
        let fragment = match parse_fragment(head, payload) {
            Ok(fragment) => fragment,
            Err(error @ Http2Error::Stream(..)) => return of_stream(head.stream, error),
            Err(error) => return Err(error),
        };
        let mut block = BlockReader::new(self.settings);
        self.decode(&fragment, &mut block)?;
        let mut is_complete = head.flags & flag::END_HEADERS != 0;
        while !is_complete {
            let (head, fragment) = self.read_frame().await?;
            self.decode(&fragment, &mut block)?;
            is_complete = head.flags & flag::END_HEADERS != 0;
        }
        self.decoder.end_block().map_err(|_| Http2Error::Connection(COMPRESSION_ERROR))?;
        match block.finish() {
            Ok(block) => {
                Ok(Frame::Head { stream: head.stream, block, is_end: head.flags & flag::END_STREAM != 0 })
            }
            Err(error) => of_stream(head.stream, error),
        }
    }

    /// Decodes a fragment of a block. After a field that is invalid or too large, none may follow.
    fn decode(&mut self, fragment: &[u8], block: &mut BlockReader) -> Result<(), Http2Error> {
        if fragment.len() > 2 * block.room || block.invalid.is_some() {
            return Err(Http2Error::Connection(PROTOCOL_ERROR));
        }
        let decoded = self.decoder.decode(fragment, |field| block.add(field));
        decoded.map_err(|_| Http2Error::Connection(COMPRESSION_ERROR))
    }

    /// Reads until this number of bytes is buffered. Returns `false` if there are fewer.
    async fn buffer(&mut self, count: usize) -> Result<bool, Http2Error> {
        while self.buffer.len() < count && !self.at_end {
            self.buffer.reserve(READ_BYTES);
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => self.at_end = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(Http2Error::UnexpectedEof);
                }
                Err(error) => return Err(Http2Error::Io(error)),
            }
        }
        Ok(self.buffer.len() >= count)
    }
}

/// Collects the fields of a block, and checks them.
struct BlockReader {
    block: FieldBlock,
    keeps: fn(&[u8]) -> bool,
    /// Number of bytes that the fields may still have.
    room: usize,
    has_regular: bool,
    /// The first field that is invalid.
    invalid: Option<String>,
}

impl BlockReader {
    fn new(settings: ConnectionSettings) -> Self {
        let room = usize::try_from(settings.max_header_list).unwrap_or(usize::MAX);
        let block = FieldBlock::default();
        Self { block, keeps: settings.keeps, room, has_regular: false, invalid: None }
    }

    fn add(&mut self, field: Field) {
        if self.invalid.is_some() || self.block.is_truncated {
            return;
        }
        let (name, value) = &field;
        let is_valid_value = value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control());
        if !is_valid_value {
            self.invalid = Some(format!("invalid header field value for {}", quote_bytes(name)));
        }
        let is_pseudo = name.starts_with(b":");
        if is_pseudo && self.has_regular {
            self.invalid = Some("pseudo header field after regular".to_owned());
        } else if !is_pseudo {
            self.has_regular = true;
            if !is_valid_name(name) {
                self.invalid = Some(format!("invalid header field name {}", quote_bytes(name)));
            }
        }
        if self.invalid.is_some() {
            return;
        }
        let size = size_of(&field);
        if size > self.room {
            (self.block.is_truncated, self.room) = (true, 0);
            return;
        }
        self.room -= size;
        self.block.size += size;
        if is_pseudo || (self.keeps)(&field.0) {
            self.block.fields.push(field);
        }
    }

    /// Returns the block, if its fields are valid (`checkPseudos`).
    fn finish(self) -> Result<FieldBlock, Http2Error> {
        let invalid = |cause| Err(Http2Error::Stream(PROTOCOL_ERROR, Some(cause)));
        if let Some(cause) = self.invalid {
            return invalid(cause);
        }
        let pseudo = self.block.fields.iter().map(|(name, _)| name).filter(|name| name.starts_with(b":"));
        let (mut seen, mut is_request, mut is_response) = (Vec::new(), false, false);
        for name in pseudo {
            match &name[..] {
                b":method" | b":path" | b":scheme" | b":authority" | b":protocol" => is_request = true,
                b":status" => is_response = true,
                other => return invalid(format!("invalid pseudo-header {}", quote_bytes(other))),
            }
            if seen.contains(&name) {
                return invalid(format!("duplicate pseudo-header {}", quote_bytes(name)));
            }
            seen.push(name);
        }
        if is_request && is_response {
            return invalid("mix of request and response pseudo headers".to_owned());
        }
        Ok(self.block)
    }
}

/// Returns whether a name may be sent (`validWireHeaderFieldName`).
fn is_valid_name(name: &[u8]) -> bool {
    let is_valid =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_valid)
}

/// Parses a frame with data (`parseDataFrame`).
fn parse_data(head: FrameHead, mut payload: Bytes) -> Result<Frame, Http2Error> {
    if head.stream == 0 {
        return Err(Http2Error::Connection(PROTOCOL_ERROR));
    }
    let padding = if head.flags & flag::PADDED == 0 { 0 } else { take_byte(&mut payload)? };
    let length = payload.len().checked_sub(padding.into()).ok_or(Http2Error::Connection(PROTOCOL_ERROR))?;
    payload.truncate(length);
    Ok(Frame::Data { stream: head.stream, bytes: payload, is_end: head.flags & flag::END_STREAM != 0 })
}

/// Returns the fragment of a block in the frame with which it begins (`parseHeadersFrame`).
fn parse_fragment(head: FrameHead, mut payload: Bytes) -> Result<Bytes, Http2Error> {
    const PRIORITY_BYTES: usize = 5;
    if head.stream == 0 {
        return Err(Http2Error::Connection(PROTOCOL_ERROR));
    }
    let padding = if head.flags & flag::PADDED == 0 { 0 } else { take_byte(&mut payload)? };
    if head.flags & flag::PRIORITY != 0 {
        if payload.len() < PRIORITY_BYTES {
            return Err(Http2Error::UnexpectedEof);
        }
        payload.advance(PRIORITY_BYTES);
    }
    let length = payload.len().checked_sub(padding.into());
    payload.truncate(length.ok_or(Http2Error::Stream(PROTOCOL_ERROR, None))?);
    Ok(payload)
}

/// Takes the first byte of a payload. Go has the error of the end of a connection for its absence.
fn take_byte(payload: &mut Bytes) -> Result<u8, Http2Error> {
    if payload.is_empty() { Err(Http2Error::UnexpectedEof) } else { Ok(payload.get_u8()) }
}

/// Parses the payload of a frame that has no data and no fields.
fn parse_payload(head: FrameHead, payload: &[u8]) -> Result<Frame, Http2Error> {
    check_payload(head).map_err(Http2Error::Connection)?;
    let number = |place: usize| {
        let bytes = payload.get(place..place + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_be_bytes)
    };
    let is_ack = head.flags & flag::ACK != 0;
    let stream = head.stream;
    Ok(match head.kind {
        kind::SETTINGS => {
            if has_too_large_window(payload) {
                return Err(Http2Error::Connection(FLOW_CONTROL_ERROR));
            }
            Frame::Settings { is_ack }
        }
        kind::PING => Frame::Ping { is_ack, data: payload.try_into().unwrap_or_default() },
        kind::RST_STREAM => Frame::Reset { stream, code: number(0) },
        kind::GOAWAY => Frame::GoAway {
            last: number(0) & 0x7fff_ffff,
            code: number(4),
            debug: payload.get(8..).unwrap_or_default().to_vec(),
        },
        kind::WINDOW_UPDATE => match number(0) & 0x7fff_ffff {
            0 if stream == 0 => return Err(Http2Error::Connection(PROTOCOL_ERROR)),
            0 => return of_stream(stream, Http2Error::Stream(PROTOCOL_ERROR, None)),
            increment => Frame::WindowUpdate { stream, increment },
        },
        _ => Frame::Other,
    })
}

/// Checks the length and the stream of a frame, in Go's order. Returns the code of an error.
fn check_payload(head: FrameHead) -> Result<(), u32> {
    let FrameHead { length, kind, flags, stream } = head;
    let of = |is_valid: bool, code: u32| if is_valid { Ok(()) } else { Err(code) };
    let has_length = of(
        match kind {
            kind::SETTINGS if flags & flag::ACK != 0 => length == 0,
            kind::SETTINGS => length.is_multiple_of(6),
            kind::PING => length == 8,
            kind::RST_STREAM | kind::WINDOW_UPDATE => length == 4,
            kind::GOAWAY => length >= 8,
            _ => length == 5,
        },
        FRAME_SIZE_ERROR,
    );
    let has_stream = of(
        match kind {
            kind::SETTINGS | kind::PING | kind::GOAWAY => stream == 0,
            kind::RST_STREAM | kind::PRIORITY => stream != 0,
            _ => true,
        },
        PROTOCOL_ERROR,
    );
    let is_ack = kind == kind::SETTINGS && flags & flag::ACK != 0;
    match kind {
        kind::PING | kind::RST_STREAM => has_length.and(has_stream),
        _ if is_ack => has_length.and(has_stream),
        _ => has_stream.and(has_length),
    }
}

/// Returns whether the first setting of the window is above the largest one.
fn has_too_large_window(payload: &[u8]) -> bool {
    const INITIAL_WINDOW_SIZE: u8 = 4;
    let mut settings = payload.chunks_exact(6);
    let window = settings.find(|setting| setting[..2] == [0, INITIAL_WINDOW_SIZE]);
    window.is_some_and(|window| window[2] & 0x80 != 0)
}

/// Returns the error of a stream; of another one than that of the request, it has no effect.
fn of_stream(stream: u32, error: Http2Error) -> Result<Frame, Http2Error> {
    if stream == STREAM { Err(error) } else { Ok(Frame::Other) }
}

/// Returns a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
