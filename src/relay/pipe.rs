//! Forwards one direction of a call: data and trailers of one stream, with the back-pressure of
//! both streams.

use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{Error, Reason, RecvStream, SendStream};

use super::backlog::{Backlog, Room};
use super::body_tap::BodyTap;
use crate::cri::{Code, StatusMessage};

/// Result of a direction.
#[derive(Debug)]
pub(super) enum PipeEnd {
    /// The sender ended its stream, and all of it was passed on.
    Clean,
    /// The sender's stream broke.
    Source(Error),
    /// The receiver reset the stream.
    SinkReset(Reason),
    /// The receiver's connection is gone.
    Sink,
}

/// Forwards one direction. It holds at most one chunk; further data in flight stays in the source's
/// window.
#[derive(Debug)]
pub(super) struct Pipe<'a> {
    from: RecvStream,
    to: SendStream<Bytes>,
    /// Room for data that is handed to the receiver.
    room: Room,
    chunk: Bytes,
    ended: bool,
    /// Number of bytes at the beginning that were read before, for which the sender has its window
    /// back already.
    released: usize,
    code: Option<Code>,
    message: Option<StatusMessage>,
    passed: &'a mut BodyTap,
}

impl<'a> Pipe<'a> {
    /// Creates a pipe between two streams whose heads have been passed on. `passed` records the
    /// data. If the head ended the source, the pipe has ended. `backlog` is that of the receiver's
    /// connection.
    pub(super) fn new(
        from: RecvStream,
        to: SendStream<Bytes>,
        backlog: &Backlog,
        passed: &'a mut BodyTap,
    ) -> Self {
        let ended = from.is_end_stream();
        let (room, chunk) = (backlog.room(), Bytes::new());
        Self { from, to, room, chunk, ended, released: 0, code: None, message: None, passed }
    }

    /// Passes on data that was read, and recorded, before.
    pub(super) fn begin_with(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.ended = false;
            self.released = data.len();
            self.to.reserve_capacity(data.len());
            self.chunk = data;
        }
    }

    /// Returns the gRPC code in the trailers, once they have passed.
    pub(super) fn code(&self) -> Option<Code> {
        self.code
    }

    /// Takes the status message of a failed call out of the trailers, once they have passed.
    pub(super) fn take_message(&mut self) -> Option<StatusMessage> {
        self.message.take()
    }

    /// Resets the receiving stream.
    pub(super) fn reset(&mut self, reason: Reason) {
        self.to.send_reset(reason);
    }

    /// Waits until the receiver has reset the stream ([`PipeEnd::SinkReset`]) or its connection is
    /// gone ([`PipeEnd::Sink`]).
    pub(super) fn poll_sink_reset(&mut self, cx: &mut Context<'_>) -> Poll<PipeEnd> {
        self.to.poll_reset(cx).map(|reset| reset.map_or(PipeEnd::Sink, PipeEnd::SinkReset))
    }

    /// Forwards as much as possible. After the end it returns [`PipeEnd::Clean`].
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<PipeEnd> {
        while !self.ended {
            if let Some(end) = ready!(self.poll_step(cx)) {
                self.ended = true;
                if matches!(end, PipeEnd::Clean) {
                    self.passed.on_eos_forwarded();
                }
                return Poll::Ready(end);
            }
        }
        Poll::Ready(PipeEnd::Clean)
    }

    /// Takes a chunk, passes on a part of a chunk, or ends.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Option<PipeEnd>> {
        if let Poll::Ready(end) = self.poll_sink_reset(cx) {
            return Poll::Ready(Some(end));
        }
        if self.chunk.has_remaining() {
            return self.poll_send(cx);
        }
        match ready!(self.from.poll_data(cx)) {
            Some(Ok(chunk)) => Poll::Ready(self.take(chunk)),
            Some(Err(error)) => Poll::Ready(Some(PipeEnd::Source(error))),
            None => self.poll_finish(cx).map(Some),
        }
    }

    /// Takes a chunk from the source, or passes on an empty one that ends the stream.
    fn take(&mut self, chunk: Bytes) -> Option<PipeEnd> {
        if chunk.is_empty() {
            return self.from.is_end_stream().then(|| self.send(chunk, true)).flatten();
        }
        self.to.reserve_capacity(chunk.len());
        self.passed.on_data(&chunk, self.from.is_end_stream());
        self.chunk = chunk;
        None
    }

    /// Passes on as much of the chunk as the receiver has room for.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Option<PipeEnd>> {
        let Some(length) = ready!(poll_room(&mut self.to, &mut self.room, self.chunk.len(), cx)) else {
            return Poll::Ready(Some(PipeEnd::Sink));
        };
        let part = self.chunk.split_to(length);
        self.passed.on_forwarded(length);
        let is_last = self.chunk.is_empty() && self.from.is_end_stream();
        let end = self.send(part, is_last);
        // Only now may the sender send that many bytes again. An error means that the stream is
        // closed, and is ignored.
        let read_before = length.min(self.released);
        self.released -= read_before;
        let _ = self.from.flow_control().release_capacity(length - read_before);
        Poll::Ready(end)
    }

    /// Passes on the trailers, or the end of the stream.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<PipeEnd> {
        let sent = match ready!(self.from.poll_trailers(cx)) {
            Ok(Some(trailers)) => {
                self.code = Code::from_headers(&trailers);
                self.message = StatusMessage::from_headers(self.code, &trailers);
                self.room.backlog().add_head(&trailers);
                self.to.send_trailers(trailers)
            }
            Ok(None) if self.from.is_end_stream() => self.to.send_data(Bytes::new(), true),
            // The stream has neither trailers nor END_STREAM. A failure that h2 does not report as
            // an error must not look like an end.
            Ok(None) => return Poll::Ready(PipeEnd::Source(Reason::NO_ERROR.into())),
            Err(error) => return Poll::Ready(PipeEnd::Source(error)),
        };
        Poll::Ready(if sent.is_ok() { PipeEnd::Clean } else { PipeEnd::Sink })
    }

    /// Passes on data. Returns the end of the direction if the data was the last, or could not be
    /// sent.
    fn send(&mut self, data: Bytes, is_last: bool) -> Option<PipeEnd> {
        match self.to.send_data(data, is_last) {
            Err(_) => Some(PipeEnd::Sink),
            Ok(()) => is_last.then_some(PipeEnd::Clean),
        }
    }
}

/// Waits until a stream, for which capacity is reserved, and its connection take a part of `length`
/// bytes. Returns the length of the part; `None` if the connection is gone.
pub(super) fn poll_room(
    to: &mut SendStream<Bytes>,
    room: &mut Room,
    length: usize,
    cx: &mut Context<'_>,
) -> Poll<Option<usize>> {
    // h2 reports an increase of the capacity once only, and this may be polled again.
    let mut capacity = to.capacity();
    if capacity == 0 {
        match ready!(to.poll_capacity(cx)) {
            Some(Ok(granted)) => capacity = granted,
            Some(Err(_)) | None => return Poll::Ready(None),
        }
    }
    let length = capacity.min(length);
    room.poll(cx, length).map(|()| Some(length))
}
