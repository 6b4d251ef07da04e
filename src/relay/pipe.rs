//! One direction of a call: data and trailers from one stream into another, with the back-pressure of both.

use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{Error, Reason, RecvStream, SendStream};

use crate::cri::Code;

/// How a direction ended.
#[derive(Debug)]
pub(super) enum End {
    /// The sender ended its stream, and all of it was passed on.
    Clean,
    /// The sender's stream broke.
    Source(Error),
    /// The receiver reset the stream.
    Declined(Reason),
    /// The receiver's connection is gone.
    Sink,
}

/// Moves one direction. Holds at most one chunk; what else is in flight lies in the source's window.
#[derive(Debug)]
pub(super) struct Pipe {
    from: RecvStream,
    to: SendStream<Bytes>,
    chunk: Bytes,
    ended: bool,
    code: Option<Code>,
}

impl Pipe {
    pub(super) fn new(from: RecvStream, to: SendStream<Bytes>) -> Self {
        Self { from, to, chunk: Bytes::new(), ended: false, code: None }
    }

    /// A direction whose headers were all there is.
    pub(super) fn finished(from: RecvStream, to: SendStream<Bytes>) -> Self {
        Self { ended: true, ..Self::new(from, to) }
    }

    /// The gRPC code in the trailers, once they have passed.
    pub(super) fn code(&self) -> Option<Code> {
        self.code
    }

    /// Resets the receiving stream.
    pub(super) fn reset(&mut self, reason: Reason) {
        self.to.send_reset(reason);
    }

    /// Whether the receiver has reset the stream, now that nothing is left to send.
    pub(super) fn poll_declined(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.to.poll_reset(cx).map(|reset| reset.map_or(End::Sink, End::Declined))
    }

    /// Moves what can be moved. After its end, only [`Self::poll_declined`] is left to ask.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.ended {
            return Poll::Ready(End::Clean);
        }
        let end = self.poll_open(cx);
        self.ended = end.is_ready();
        end
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if let Poll::Ready(end) = self.poll_declined(cx) {
                return Poll::Ready(end);
            }
            let sent = if self.chunk.has_remaining() {
                ready!(self.poll_send(cx))
            } else {
                match ready!(self.from.poll_data(cx)) {
                    Some(Ok(chunk)) => self.take(chunk),
                    Some(Err(error)) => return Poll::Ready(End::Source(error)),
                    None => return self.poll_finish(cx),
                }
            };
            match sent {
                Sent::Some => {}
                Sent::Last => return Poll::Ready(End::Clean),
                Sent::Refused => return Poll::Ready(End::Sink),
            }
        }
    }

    /// Takes a chunk from the source, or passes on an empty one that ends the stream.
    fn take(&mut self, chunk: Bytes) -> Sent {
        if chunk.is_empty() {
            return if self.from.is_end_stream() { self.send(chunk, true) } else { Sent::Some };
        }
        self.to.reserve_capacity(chunk.len());
        self.chunk = chunk;
        Sent::Some
    }

    /// Passes on as much of the chunk as the receiver has room for.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Sent> {
        let mut room = self.to.capacity();
        if room == 0 {
            match ready!(self.to.poll_capacity(cx)) {
                Some(Ok(granted)) => room = granted,
                Some(Err(_)) | None => return Poll::Ready(Sent::Refused),
            }
        }
        let part = self.chunk.split_to(room.min(self.chunk.len()));
        let length = part.len();
        let last = self.chunk.is_empty() && self.from.is_end_stream();
        let sent = self.send(part, last);
        // Only now may the sender send as much again. Fails only where the stream is closed, and then it does not matter.
        let _ = self.from.flow_control().release_capacity(length);
        Poll::Ready(sent)
    }

    /// Passes on the trailers, or the end.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let sent = match ready!(self.from.poll_trailers(cx)) {
            Ok(Some(trailers)) => {
                self.code = Code::from_headers(&trailers);
                self.to.send_trailers(trailers)
            }
            Ok(None) if self.from.is_end_stream() => self.to.send_data(Bytes::new(), true),
            // Neither trailers nor END_STREAM: a reset that h2 does not report as an error must not look like an end.
            Ok(None) => return Poll::Ready(End::Source(Reason::NO_ERROR.into())),
            Err(error) => return Poll::Ready(End::Source(error)),
        };
        Poll::Ready(if sent.is_ok() { End::Clean } else { End::Sink })
    }

    fn send(&mut self, data: Bytes, last: bool) -> Sent {
        match self.to.send_data(data, last) {
            Err(_) => Sent::Refused,
            Ok(()) if last => Sent::Last,
            Ok(()) => Sent::Some,
        }
    }
}

/// What became of one send.
enum Sent {
    Some,
    Last,
    Refused,
}
