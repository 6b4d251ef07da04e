//! A stream of the runtime's, from the moment at which it is asked for.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio_stream::Stream;
use tonic::{Response, Status, Streaming};

type PendingStream<T> = Pin<Box<dyn Future<Output = Result<Response<Streaming<T>>, Status>> + Send>>;

/// The messages of a streaming call. grpc-go sends the head of a response with the first message, which may be hours away: so the answer
/// is waited for where the first message is.
pub enum LazyStream<T> {
    /// No head has come.
    Pending(PendingStream<T>),
    /// The head has come.
    Open(Box<Streaming<T>>),
}

impl<T> LazyStream<T> {
    /// The messages of a call that is about to be made. Nothing is sent before the first message is asked for.
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
            Self::Pending(_) => "Subscription::Asked",
            Self::Open(_) => "Subscription::Open",
        })
    }
}
