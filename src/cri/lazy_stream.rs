//! A response stream of the runtime that is opened when it is first polled.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio_stream::Stream;
use tonic::{Response, Status, Streaming};

type PendingStream<T> = Pin<Box<dyn Future<Output = Result<Response<Streaming<T>>, Status>> + Send>>;

/// The messages of a streaming call. grpc-go sends the head of a response with the first message,
/// which may be hours away, so the head is awaited together with the first message.
pub enum LazyStream<T> {
    /// The head of the response has not been received.
    Pending(PendingStream<T>),
    /// The head of the response has been received.
    Open(Box<Streaming<T>>),
}

impl<T> LazyStream<T> {
    /// Creates the stream of a call. No request is sent before the stream is first polled.
    pub fn new(call: impl Future<Output = Result<Response<Streaming<T>>, Status>> + Send + 'static) -> Self {
        Self::Pending(Box::pin(call))
    }
}

impl<T: 'static> Stream for LazyStream<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut *self {
                Self::Pending(answer) => match ready!(answer.as_mut().poll(cx)) {
                    Ok(response) => *self = Self::Open(Box::new(response.into_inner())),
                    Err(status) => return Poll::Ready(Some(Err(status))),
                },
                Self::Open(stream) => return Pin::new(&mut **stream).poll_next(cx),
            }
        }
    }
}

impl<T> fmt::Debug for LazyStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending(_) => "LazyStream::Pending",
            Self::Open(_) => "LazyStream::Open",
        })
    }
}
